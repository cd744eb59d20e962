/* Threads that share work under locks, are created and joined in numbers, use thread-local data, condition
   variables and barriers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static long shared;
static __thread long mine;
static int turn;

static void *work(void *arg) {
    long id = (long)arg;
    for (int i = 0; i < 20000; i++) {
        mine += id;
        pthread_mutex_lock(&lock);
        shared++;
        pthread_mutex_unlock(&lock);
    }
    pthread_barrier_wait(&barrier);
    pthread_mutex_lock(&lock);
    while (turn != id) pthread_cond_wait(&cond, &lock);
    turn++;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
    return (void *)(mine / 20000);
}

static void *quick(void *arg) { return (void *)((long)arg * 2); }

static volatile int got;
static void usr(int s) { (void)s; __sync_fetch_and_add(&got, 1); }
static volatile int stop;
static void *loop(void *arg) { (void)arg; while (!stop) ; return NULL; }

int main(void) {
    enum { N = 8 };
    pthread_t t[N];
    pthread_barrier_init(&barrier, NULL, N);
    for (long i = 0; i < N; i++) pthread_create(&t[i], NULL, work, (void *)i);
    long sum = 0;
    for (int i = 0; i < N; i++) { void *r; pthread_join(t[i], &r); sum += (long)r; }
    printf("shared %ld sum %ld\n", shared, sum);
    sum = 0;
    for (long i = 0; i < 500; i++) {
        pthread_t q;
        void *r;
        if (pthread_create(&q, NULL, quick, (void *)i)) return 1;
        pthread_join(q, &r);
        sum += (long)r;
    }
    printf("quick %ld\n", sum);
    signal(SIGUSR1, usr);
    pthread_t l;
    pthread_create(&l, NULL, loop, NULL);
    for (int i = 0; i < 50; i++) { int g = got; pthread_kill(l, SIGUSR1); while (got == g) ; }
    stop = 1;
    pthread_join(l, NULL);
    printf("signals %d\n", got);
    return 0;
}
