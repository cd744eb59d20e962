/* A handler of a timer's signals looks at the stack pointer of what it interrupts: a loop that fills memory and jumps by a table,
 * and moves it for nothing but the call of a function written by hand (odd.S), which may return with flags that mean something.
 *
 *   interrupted SIGNALS
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>

#include "fill.h"

unsigned long odd(unsigned long turn);

static volatile unsigned long expected;
static volatile long seen, wrong;

static void look(int number, siginfo_t *info, void *context)
{
    const ucontext_t *interrupted = context;
    (void)number;
    (void)info;
    if (!expected)
        return;
    seen++;
    unsigned long lower = expected - (unsigned long)interrupted->uc_mcontext.gregs[REG_RSP];
    wrong += lower != 0 && lower != 8;
}

static unsigned long __attribute__((noinline)) loop(long signals)
{
    unsigned long room[8] = {0}, sum = 0, stack;
    volatile unsigned long kept = KEPT;
    __asm__ volatile("mov %%rsp, %0" : "=r"(stack));
    expected = stack;
    for (long turn = 0; seen < signals; turn++)
        sum = fill(room, turn, odd(sum), &kept);
    expected = 0;
    return sum;
}

int main(int argc, char **argv)
{
    long signals = argc > 1 ? atol(argv[1]) : 100;
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval often = {{0, 1000}, {0, 1000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int filled = loop(signals) != 0;
    printf("%d, %ld wrong\n", filled, wrong);
    return wrong != 0;
}
