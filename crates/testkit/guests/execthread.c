/* A thread that is not the first executes a new program. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *other(void *arg) {
    pause();
    return 0;
}
static void *work(void *arg) {
    execl("/proc/self/exe", "again", "executed", (char *)0);
    return 0;
}
int main(int argc, char **argv) {
    if (argc > 1) {
        puts(argv[1]);
        return 8;
    }
    pthread_t t[2];
    pthread_create(&t[0], 0, other, 0);
    pthread_create(&t[1], 0, work, 0);
    for (;;) pause();
}
