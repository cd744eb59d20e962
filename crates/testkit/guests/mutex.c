/* Two threads share a counter under a mutex and hand a turn to and fro by a
   condition variable. */
#include <pthread.h>
#include <stdio.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int counter, turn;
static void *work(void *arg) {
    int me = (int)(long)arg;
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&lock);
        while (turn != me) pthread_cond_wait(&turn_changed, &lock);
        counter++;
        turn = 1 - me;
        pthread_cond_broadcast(&turn_changed);
        pthread_mutex_unlock(&lock);
    }
    return (void *)(long)(me + 10);
}
int main(void) {
    pthread_t t[2];
    void *r[2];
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(t[i], &r[i]);
    printf("counter %d, results %ld %ld\n", counter, (long)r[0], (long)r[1]);
    return counter == 40 ? 0 : 1;
}
