/* A thread sleeps in a read while the other computes, then wakes it. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int ends[2];
static void *reader(void *arg) {
    char c = 0;
    if (read(ends[0], &c, 1) != 1) return 0;
    return (void *)(long)c;
}
int main(void) {
    pthread_t t;
    void *got;
    if (pipe(ends)) return 1;
    pthread_create(&t, 0, reader, 0);
    unsigned x = 1;
    for (int i = 0; i < 3000; i++) x = x * 1103515245 + 12345;
    if (write(ends[1], "q", 1) != 1) return 1;
    pthread_join(t, &got);
    printf("%u %c\n", x, (int)(long)got);
    return 0;
}
