// Faults in the middle of straight code, taken back by handlers: loads and stores that never happen, a division
// by zero, a string instruction that ends at a hole, addresses at which there is never anything.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static sigjmp_buf back;
static volatile long seen, sum;
static char *page;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    seen += number + ((char *)info->si_addr == page);
    siglongjmp(back, 1);
}

// A handler that mends what faulted, so that the instruction runs again.
static void on_closed(int number, siginfo_t *info, void *context) {
    (void)context, (void)info;
    seen += number;
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static long straight(volatile long *a, volatile long *b, long n) {
    long x = a[0] + n;
    b[1] = x;
    x += a[2];
    b[3] = x * 3;
    return x + a[4];
}

int main(void) {
    static long here[64];
    char *base = mmap(0, 12288, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(base, 4096, PROT_READ | PROT_WRITE);
    page = base + 4096;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGFPE, &action, 0);
    for (volatile int i = 0; i < 50; i++) {
        if (!sigsetjmp(back, 1)) sum += straight((long *)page, here, i);
        if (!sigsetjmp(back, 1)) sum += straight(here, (long *)page, i);
        if (!sigsetjmp(back, 1)) sum += here[i % 8] / (i - i);
        if (!sigsetjmp(back, 1)) asm volatile("movl $1, 0\n addq $1, %0" : "+m"(sum));
        if (!sigsetjmp(back, 1)) asm volatile("addq 64, %%rax\n addq $1, %0" : "+m"(sum) : : "rax");
        if (!sigsetjmp(back, 1)) memset(page - 8 * (i % 3), 1, 4096);
        for (int k = 0; k < 20; k++) sum += straight(here + k, here + 20, k);
    }
    action.sa_sigaction = on_closed;
    sigaction(SIGSEGV, &action, 0);
    for (volatile int i = 0; i < 50; i++) {
        mprotect(page, 4096, PROT_NONE);
        sum += straight((long *)page, here, i);
        mprotect(page, 4096, PROT_READ);
        sum += straight(here, (long *)page, i);
    }
    printf("%ld %ld\n", seen, sum);
    return 0;
}
