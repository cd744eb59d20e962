/* Odd control flow: calls that are no calls, returns that are jumps, changed return addresses, red
   zone, flags across every kind of transfer, other stacks, deep recursion, string direction. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

static void odd_calls(void) {
    uint64_t a, b, c, d;
    asm volatile("call 1f\n 1: pop %0\n lea 1b(%%rip), %1\n" : "=r"(a), "=r"(b));
    printf("call and pop %d\n", a == b);
    asm volatile("lea 1f(%%rip), %0\n push %0\n ret\n ud2\n 1: mov $7, %0\n" : "=r"(a));
    printf("push and return %ld\n", (long)a);
    asm volatile("call 1f\n ud2\n jmp 2f\n 1: addq $2, (%%rsp)\n ret\n 2: mov $8, %0\n" : "=r"(a));
    printf("return further on %ld\n", (long)a);
    /* A retpoline. */
    asm volatile("lea 3f(%%rip), %0\n call 1f\n 2: pause\n lfence\n jmp 2b\n 1: mov %0, (%%rsp)\n ret\n 3: mov $9, %0\n" : "=r"(a));
    printf("retpoline %ld\n", (long)a);
    /* Arguments taken off by the called. */
    asm volatile("mov %%rsp, %1\n push $1\n push $2\n push $3\n call 1f\n jmp 2f\n 1: mov 8(%%rsp), %0\n add 16(%%rsp), %0\n ret $24\n 2: sub %%rsp, %1\n" : "=&r"(a), "=&r"(b));
    printf("return with arguments %ld %ld\n", (long)a, (long)b);
    /* An operand relative to the stack pointer that the call itself moves. */
    asm volatile("lea 1f(%%rip), %0\n push %0\n push %0\n call *8(%%rsp)\n jmp 2f\n 1: mov $5, %0\n ret\n 2: add $16, %%rsp\n" : "=&r"(a));
    printf("call through the stack %ld\n", (long)a);
    asm volatile("lea 1f(%%rip), %0\n push %0\n jmp *(%%rsp)\n ud2\n 1: pop %1\n sub %0, %1\n" : "=&r"(a), "=&r"(b));
    printf("jump through the stack %ld\n", (long)b);
    asm volatile("push %%rsp\n pop %0\n mov %%rsp, %1\n push (%%rsp)\n pop %2\n enter $32, $0\n leave\n mov %%rsp, %3\n" : "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d));
    printf("push of the pointer %d %d\n", a == b, b == d);
}

/* All transfers keep all flags and all registers. */
static void flags(void) {
    int bad = 0;
    for (int i = 0; i < 256; i++) {
        uint64_t want = (i & 1) | (i & 2) << 1 | (i & 4) << 2 | (i & 8) << 3 | (i & 16) << 3 | (i & 32) << 6, got;
        asm volatile("push %1\n popfq\n"
                     "lea 1f(%%rip), %%rax\n jmp *%%rax\n ud2\n"
                     "1: lea 2f(%%rip), %%rax\n call *%%rax\n jmp 3f\n"
                     "2: lea 4f(%%rip), %%rdx\n push %%rdx\n ret\n ud2\n 4: ret\n"
                     "3: call 5f\n jmp 6f\n 5: ret\n 6: pushfq\n pop %0\n"
                     : "=r"(got) : "r"(want) : "rax", "rdx", "cc", "memory");
        if ((got & 0x8d5) != want) bad++;
    }
    printf("flags lost %d times\n", bad);
}

/* What lies below the stack pointer within 128 bytes is the program's, also over jumps. */
static void red_zone(void) {
    uint64_t sum;
    asm volatile("movq $11, -8(%%rsp)\n movq $22, -16(%%rsp)\n movq $33, -64(%%rsp)\n movq $44, -128(%%rsp)\n"
                 "lea 1f(%%rip), %%rax\n jmp *%%rax\n ud2\n 1: mov $100, %%ecx\n 2: dec %%ecx\n jnz 2b\n"
                 "mov -8(%%rsp), %0\n add -16(%%rsp), %0\n add -64(%%rsp), %0\n add -128(%%rsp), %0\n"
                 : "=&r"(sum) : : "rax", "rcx", "cc", "memory");
    printf("red zone %ld\n", (long)sum);
    /* A dead slot keeps the return address that was there. */
    uint64_t dead, want;
    asm volatile("sub $128, %%rsp\n call 1f\n 2: mov -8(%%rsp), %0\n lea 2b(%%rip), %1\n jmp 3f\n 1: ret\n 3: add $128, %%rsp\n" : "=&r"(dead), "=&r"(want));
    printf("dead slot %d\n", dead == want);
}

static void direction(void) {
    char from[32] = "abcdefghijklmnopqrstuvwxyz", to[32] = {0};
    char *s = from + 25, *d = to + 25;
    long n = 26;
    asm volatile("std\n rep movsb\n lea 1f(%%rip), %%rax\n jmp *%%rax\n 1: pushfq\n pop %%rax\n cld\n" : "+S"(s), "+D"(d), "+c"(n) : : "rax", "memory", "cc");
    printf("backwards %s %ld\n", to, (long)(s - from));
    long found = 0;
    asm volatile("std\n mov $39, %%eax\n syscall\n pushfq\n pop %0\n cld\n" : "=r"(found) : : "rax", "rcx", "r11", "memory", "cc");
    printf("direction after a system call %ld\n", found >> 10 & 1);
}

static void counts(void) {
    long a = 0, c = 10;
    asm volatile("1: add $3, %0\n loop 1b\n jrcxz 2f\n add $1000, %0\n 2:" : "+r"(a), "+c"(c) : : "cc");
    printf("loop %ld\n", a);
    unsigned e = 5;
    asm volatile("1: add $1, %0\n .byte 0x67\n loop 1b\n .byte 0x67, 0xe3, 0x07\n add $1000, %0\n" : "+r"(a), "+c"(e) : : "cc");
    printf("short loop %ld\n", a);
}

static ucontext_t main_context, contexts[3];
static char stacks[3][1 << 16];
static int turns;
static void worker(int me) {
    for (int i = 0; i < 1000; i++) {
        turns += me;
        swapcontext(&contexts[me], &contexts[(me + 1) % 3]);
    }
}
static void switching(void) {
    for (int i = 0; i < 3; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = sizeof stacks[i];
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))worker, 1, i);
    }
    swapcontext(&main_context, &contexts[0]);
    printf("contexts %d\n", turns);
}

static jmp_buf back;
static int depth;
__attribute__((noinline)) static int deep(int n) {
    depth = n;
    if (n == 20000) longjmp(back, 5);
    return deep(n + 1) + 1;
}
static void jumps(void) {
    int by = setjmp(back);
    if (!by) deep(0);
    printf("jumped back by %d from %d\n", by, depth);
}

static sigjmp_buf over;
static char rescue[1 << 16];
static volatile int reached;
static volatile int last_kind;
static void on_overflow(int s, siginfo_t *info, void *c) {
    char *sp = (char *)((ucontext_t *)c)->uc_mcontext.gregs[REG_RSP];
    last_kind = info->si_code;
    reached = (char *)info->si_addr > sp - 65536 && (char *)info->si_addr < sp + 65536;
    siglongjmp(over, 1);
}
__attribute__((noinline)) static long endless(long n, char *p) {
    volatile char room[300];
    room[n % 300] = (char)n;
    return endless(n + 1, (char *)room) + room[n % 200];
}
static void overflow(void) {
    stack_t st = {.ss_sp = rescue, .ss_size = sizeof rescue};
    sigaltstack(&st, 0);
    struct sigaction a = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &a, 0);
    for (int i = 0; i < 3; i++) {
        if (!sigsetjmp(over, 1)) endless(i, 0);
        printf("stack overflow near the pointer: %d code %d\n", reached, last_kind);
    }
}

__attribute__((noinline)) static long large(size_t n) {
    volatile char *p = __builtin_alloca(n);
    for (size_t i = 0; i < n; i += 4096) p[n - 1 - i] = 1;
    return p[n - 1];
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    odd_calls();
    flags();
    red_zone();
    direction();
    counts();
    switching();
    jumps();
    printf("large %ld\n", large(6 << 20));
    overflow();
    return 0;
}
