/* Work in several processes of several threads each: `crowd PROCESSES THREADS ROUNDS [SECONDS]`. With one process and no
   further thread, every run does the same. Behind its work it sleeps for so many seconds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = 4096 };
static long rounds;

static void *work(void *arg) {
    unsigned *a = arg, x = 12345;
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < LEN; i++) a[i] = x = x * 1664525 + 1013904223;
        for (int gap = LEN / 2; gap; gap /= 2)
            for (int i = gap; i < LEN; i++)
                for (int j = i; j >= gap && a[j - gap] > a[j]; j -= gap) {
                    unsigned t = a[j];
                    a[j] = a[j - gap];
                    a[j - gap] = t;
                }
    }
    return a;
}

static int crowd(int threads) {
    static unsigned data[17][LEN];
    pthread_t thread[16];
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, work, data[i + 1]);
    work(data[0]);
    int same = 1;
    for (int i = 0; i < threads; i++) {
        pthread_join(thread[i], 0);
        same &= data[i + 1][LEN / 2] == data[0][LEN / 2];
    }
    return same ? 0 : 1;
}

int main(int argc, char **argv) {
    int processes = argc > 1 ? atoi(argv[1]) : 1, threads = argc > 2 ? atoi(argv[2]) % 17 : 0;
    rounds = argc > 3 ? atol(argv[3]) : 1;
    int bad = 0;
    for (int i = 1; i < processes; i++)
        if (!fork()) _exit(crowd(threads));
    bad |= crowd(threads);
    for (int i = 1, status; i < processes; i++)
        if (wait(&status) < 0 || status) bad = 1;
    if (argc > 4) sleep(atoi(argv[4]));
    puts(bad ? "bad" : "good");
    return bad ? 1 : 7;
}
