// Threads made and joined one after the other: sequence COUNT
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static long sum;
static void *work(void *number) {
    for (long i = 0; i < 20; i++) sum += (long)number ^ i;
    return 0;
}
int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 100;
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, (void *)i)) return 1;
        pthread_join(thread, 0);
    }
    printf("%ld threads, %ld\n", count, sum);
    return 0;
}
