/* Many threads: a barrier, an atomic sum, and a spinning wait that must make
   progress although only one thread runs at a time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
enum { N = 32 };
static pthread_barrier_t barrier;
static atomic_int sum, arrived;
static void *work(void *arg) {
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 10; i++) atomic_fetch_add(&sum, (int)(long)arg);
    atomic_fetch_add(&arrived, 1);
    while ((long)arg < 4 && atomic_load(&arrived) < N) __builtin_ia32_pause();
    return 0;
}
int main(void) {
    pthread_t t[N];
    pthread_barrier_init(&barrier, 0, N);
    for (long i = 0; i < N; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < N; i++) pthread_join(t[i], 0);
    printf("sum %d\n", (int)sum);
    return 0;
}
