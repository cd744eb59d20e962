/* Flags that the program loads, and what a handler sees of them later: the trap flag must not be among them unless the
   program sets it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    printf("signal %d flags %llx\n", number, r[REG_EFL] & 0x700);
    r[REG_RIP] += 3;
}

#define FAULT "mov (%%rax), %%rdx\n"

int main(void) {
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &a, 0);
    sigaction(SIGTRAP, &a, 0);
    asm volatile("xor %%eax, %%eax\n" FAULT ::: "rax", "rdx", "cc", "memory");
    asm volatile("xor %%eax, %%eax\n sub $256, %%rsp\n pushq $0x8d7\n popfq\n" FAULT "add $256, %%rsp\n cld" ::
                     : "rax", "rdx", "cc", "memory");
    asm volatile("xor %%eax, %%eax\n sub $256, %%rsp\n pushfq\n popfq\n nop\n nop\n" FAULT "add $256, %%rsp" ::
                     : "rax", "rdx", "cc", "memory");
    asm volatile("sub $256, %%rsp\n xor %%eax, %%eax\n mov %%rsp, %%rdx\n mov %%ss, %%ecx\n push %%rcx\n push %%rdx\n"
                 "pushfq\n mov %%cs, %%ecx\n push %%rcx\n lea 1f(%%rip), %%rcx\n push %%rcx\n iretq\n"
                 "1: nop\n" FAULT "add $256, %%rsp" ::
                     : "rax", "rcx", "rdx", "cc", "memory");
    unsigned long flags;
    asm volatile("sub $256, %%rsp\n pushfq\n pop %0\n add $256, %%rsp" : "=r"(flags)::"cc");
    printf("left %lx\n", flags & 0x500);
    return 0;
}
