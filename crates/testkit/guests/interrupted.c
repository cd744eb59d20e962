/* A handler of a timer's signals looks at the stack pointer of what it interrupts: a loop that fills memory and jumps by a table,
 * and never moves it.
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
    wrong += (unsigned long)interrupted->uc_mcontext.gregs[REG_RSP] != expected;
}

static unsigned long __attribute__((noinline)) fill(long signals)
{
    unsigned long room[8] = {0}, sum = 0, stack;
    __asm__ volatile("mov %%rsp, %0" : "=r"(stack));
    expected = stack;
    for (long turn = 0; seen < signals; turn++) {
        unsigned long *to = room + turn % 4;
        unsigned long count = 1 + turn % 3;
        __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(turn) : "memory");
        switch (turn % 7) {
        case 0: sum += room[1]; break;
        case 1: sum ^= room[2] << 3; break;
        case 2: sum += turn; break;
        case 3: sum -= room[3]; break;
        case 4: sum = sum << 1 | sum >> 63; break;
        default: sum += room[4] * 3; break;
        }
    }
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
    int filled = fill(signals) != 0;
    printf("%d, %ld wrong\n", filled, wrong);
    return wrong != 0;
}
