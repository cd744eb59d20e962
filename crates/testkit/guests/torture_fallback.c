/* Does something that the engine cannot follow while other threads run, sleep and begin, and then all that would
   show if it were not gone altogether: signals, alternate stacks, thread areas, stores to code, new processes. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static __thread int mine;
static volatile int stop;
static volatile sig_atomic_t signals;
static char stack[1 << 16];
static int ends[2];

static void on_signal(int number) {
    char here;
    signals += number + (&here >= stack && &here < stack + sizeof stack ? 1000 : 0) + mine;
}

static void *spin(void *p) {
    mine = (long)p;
    long n = 0;
    do n++; while (!stop);
    return (void *)(long)(mine * 10 + (n != 0));
}

static void *reads(void *p) {
    mine = (long)p;
    char c = 0;
    while (read(ends[0], &c, 1) < 0 && errno == EINTR) {}
    return (void *)(long)(mine * 10 + c);
}

static void *nothing(void *p) { return p; }

static void *makes(void *p) {
    mine = (long)p;
    long wrong = 0;
    do {
        pthread_t made;
        void *result = 0;
        wrong += pthread_create(&made, 0, nothing, p) != 0 || pthread_join(made, &result) != 0 || result != p;
    } while (!stop && !wrong);
    return (void *)(long)(mine * 10 + !wrong);
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    int crowd = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t threads[16];
    void *(*const work[])(void *) = { reads, spin, makes };
    mine = 7;
    stack_t alt = { .ss_sp = stack, .ss_size = sizeof stack };
    sigaltstack(&alt, 0);
    struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
    sigaction(SIGUSR1, &a, 0);
    pipe(ends);
    uint8_t *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, "\xb8\x05\0\0\0\xc3", 6);
    printf("code %d\n", ((int (*)(void))code)());
    for (long i = 0; i < crowd; i++) pthread_create(&threads[i], 0, work[i % 3], (void *)(i + 1));
    usleep(10000);
    raise(SIGUSR1);
    int now = 0;
    asm volatile("int $0x80" : "=a"(now) : "a"(13), "b"(0));
    printf("time %d, signals %d\n", now - (int)time(0) < 2, signals);
    raise(SIGUSR1);
    code[1] = 9;
    printf("signals %d, mine %d, code %d\n", signals, mine, ((int (*)(void))code)());
    stop = 1;
    for (long i = 0; i < crowd; i += 3) write(ends[1], "a", 1);
    long sum = 0;
    for (long i = 0; i < crowd; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    printf("threads %ld\n", sum);
    int status;
    if (fork() == 0) execl("/bin/echo", "echo", "child", (char *)0);
    wait(&status);
    return status == 0 ? 3 : 4;
}
