/* Ends while other threads sleep and spin. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int spins;
static void *sleeper(void *arg) {
    pause();
    return 0;
}
static void *spinner(void *arg) {
    for (;;) spins++;
    return 0;
}
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, sleeper, 0);
    pthread_create(&t, 0, spinner, 0);
    while (spins < 1000) {}
#ifdef FOREVER
    for (;;) {}
#endif
    puts("leaving");
    exit(9);
}
