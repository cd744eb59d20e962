/* What a program could use to find out that it is being stepped. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
static volatile int codes[64], traps, off;
static volatile unsigned long places[64];
static void on_trap(int s, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    if (off) u->uc_mcontext.gregs[REG_EFL] &= ~0x100l;
    places[traps % 64] = (unsigned long)u->uc_mcontext.gregs[REG_RIP];
    codes[traps++ % 64] = info->si_code;
}
static unsigned long flags(void) {
    unsigned long f;
    __asm__ volatile("pushfq\n popq %0" : "=r"(f)::"memory");
    return f;
}
static unsigned long r11_after_call(void) {
    unsigned long r;
    __asm__ volatile("syscall\n mov %%r11,%0" : "=r"(r) : "a"(SYS_getpid) : "rcx", "r11", "memory");
    return r;
}
static short flags16(void) {
    short f;
    __asm__ volatile("pushfw\n popw %0" : "=r"(f)::"memory");
    return f;
}
int main(void) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_trap;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &a, 0);
    printf("flags %lx %x\n", flags() & 0x100, flags16() & 0x100);
    printf("r11 %lx\n", r11_after_call() & 0x100);
    __asm__ volatile("int3");
    printf("int3: %d traps, code %d\n", traps, codes[0]);
    __asm__ volatile(".byte 0xf1");
    printf("int1: %d traps, code %d\n", traps, codes[1]);
    raise(SIGTRAP);
    printf("raise: %d traps, code %d\n", traps, codes[2]);
    traps = 0;
    off = 0;
    unsigned long start, end;
    __asm__ volatile(
        "lea 1f(%%rip),%0\n lea 2f(%%rip),%1\n"
        "pushfq\n orq $0x100,(%%rsp)\n popfq\n"
        "1: nop\n nop\n nop\n"
        "pushfq\n andq $~0x100,(%%rsp)\n popfq\n"
        "2: nop\n"
        : "=&r"(start), "=&r"(end)::"memory", "cc");
    printf("own steps: %d traps, code %d, first at +%ld, last at %ld\n", traps, codes[0],
           places[0] - start, places[traps - 1] - end);
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    for (volatile int i = 0; i < 10; i++) {}
    sigprocmask(SIG_SETMASK, &old, 0);
    struct sigaction now;
    sigaction(SIGTRAP, 0, &now);
    printf("handler kept %d\n", now.sa_sigaction == on_trap);
    return 0;
}
