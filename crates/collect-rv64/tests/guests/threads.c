// Threads that meet at locks, condition variables and barriers.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS 6
#define TURNS 3000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long guarded;
static atomic_long counted;
static int turn;
static __thread long mine;

static void *work(void *argument) {
    long id = (long)argument;
    for (int i = 0; i < TURNS; i++) {
        pthread_mutex_lock(&lock);
        guarded += id;
        pthread_mutex_unlock(&lock);
        atomic_fetch_add(&counted, 1);
        mine++;
    }
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&lock);
    while (turn != id) pthread_cond_wait(&turned, &lock);
    printf("thread %ld did %ld\n", id, mine);
    turn++;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
    return (void *)(id * 2);
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)i);
    long sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    printf("%ld %ld %ld\n", guarded, (long)counted, sum);
    return 0;
}
