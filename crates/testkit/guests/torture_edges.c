/* Faults where a block has begun to store its words and has more to store: sooner or later a buffer ends between those.
   The fault's handler mends the pointer, and the instruction is done again. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static void *cells[8];
static unsigned long faults;

static void mend(int number, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    if (number != SIGSEGV || info->si_addr != (void *)16) abort();
    uc->uc_mcontext.gregs[REG_RDI] = (greg_t)&cells[0];
    faults++;
}

/* One block: each pointer is found by the one before. */
__attribute__((naked, noinline)) static uint64_t chase(void *from) {
    __asm__("mov (%rdi), %rax\n mov (%rax), %rcx\n mov (%rcx), %rdx\n mov (%rdx), %rsi\n"
            "mov (%rsi), %r8\n mov (%r8), %r9\n mov (%r9), %rax\n ret");
}

/* Several, of which any may be the one that faults. */
__attribute__((naked, noinline)) static uint64_t wander(void *from, int where) {
    __asm__("mov %rdi, %r10\n lea cells(%rip), %rdi\n"
            "test %esi, %esi\n jnz 1f\n mov %r10, %rdi\n 1: mov (%rdi), %rax\n mov (%rax), %rcx\n"
            "lea cells(%rip), %rdi\n cmp $1, %esi\n jne 2f\n mov %r10, %rdi\n 2: mov (%rdi), %rdx\n mov (%rdx), %r8\n"
            "lea cells(%rip), %rdi\n cmp $2, %esi\n jne 3f\n mov %r10, %rdi\n 3: mov (%rdi), %r9\n mov (%r9), %rax\n ret");
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20000;
    struct sigaction action = {.sa_sigaction = mend, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    for (int i = 0; i < 8; i++) cells[i] = &cells[(i + 1) % 8];
    uint64_t sum = 0;
    for (int i = 0; i < rounds; i++) {
        /* Records of other lengths move all that follows. */
        for (int j = 0; j < i % 5; j++) sum += chase(&cells[j]) - (uint64_t)cells;
        sum += chase((void *)16) - (uint64_t)cells;
        for (int j = 0; j < 4; j++) sum += wander(&cells[0], j) - (uint64_t)cells;
        sum += wander((void *)16, i % 3) - (uint64_t)cells;
    }
    printf("faults %lu sum %lu\n", faults, (unsigned long)sum);
    return 0;
}
