/* Faults with the exact state of the program: every general register, the flags, the
   instruction pointer and what the kernel says about the cause are looked at in the handler;
   then registers, the vector state and the instruction pointer are changed there, and the
   program goes on with the changes. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static char other_stack[1 << 16] __attribute__((aligned(4096)));
static char *hole, *readonly, *past;
uint64_t frame[20], seen[20];
static const char *what;
static volatile int count;
static const int order[16] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP, REG_R8,
                              REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RSP};
static uint64_t expect_rip, expect_addr, resume;

static const char *place(uint64_t a, uint64_t rip) {
    return a == expect_addr ? "expected" : a == 0 ? "zero" : a == rip ? "the instruction" : "other";
}

/* A distance if it is short. */
static long near(uint64_t a, uint64_t b) {
    long d = a - b;
    return d > -4096 && d < 4096 ? d : 99999;
}

static void on_fault(int number, siginfo_t *info, void *data) {
    ucontext_t *u = data;
    greg_t *r = u->uc_mcontext.gregs;
    int bad = 0;
    for (int i = 0; i < 15; i++)
        if ((uint64_t)r[order[i]] != frame[i]) bad |= 1 << i;
    printf("%s: signal %d code %d addr %s rip %+ld trap %ld err %ld", what, number, info->si_code,
           place((uint64_t)info->si_addr, r[REG_RIP]), near(r[REG_RIP], expect_rip), (long)r[REG_TRAPNO], (long)r[REG_ERR]);
    if (r[REG_TRAPNO] == 14) printf(" cr2 %s", place(r[REG_CR2], 0));
    printf(" bad %x rsp %+ld flags %lx\n", bad, near(r[REG_RSP], frame[15]), (long)(r[REG_EFL] & 0xcd5));
    r[REG_RIP] = resume;
    r[REG_RSP] = frame[15];
    r[REG_RBX] = 0x1234567890abcdef;
    /* A changed vector register: xmm3 becomes a pattern. */
    u->uc_mcontext.fpregs->_xmm[3].element[0] = 0xfeedface;
    count++;
}

/* Loads all registers from `frame`, sets the flags, runs the instruction, stores what is there then. */
#define TRY(name, insn, addr)                                                                               \
    do {                                                                                                    \
        what = name;                                                                                        \
        expect_addr = (uint64_t)(addr);                                                                     \
        uint64_t xmm = 0;                                                                                   \
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %[rip]\n lea 2f(%%rip), %%rax\n mov %%rax, %[res]\n"   \
                     "pxor %%xmm3, %%xmm3\n"                                                                \
                     "push %%rbx\n push %%rbp\n sub $256, %%rsp\n mov %%rsp, frame+120(%%rip)\n"             \
                     "mov frame+8(%%rip), %%rbx\n mov frame+16(%%rip), %%rcx\n mov frame+24(%%rip), %%rdx\n" \
                     "mov frame+32(%%rip), %%rsi\n mov frame+40(%%rip), %%rdi\n mov frame+48(%%rip), %%rbp\n"\
                     "mov frame+56(%%rip), %%r8\n mov frame+64(%%rip), %%r9\n mov frame+72(%%rip), %%r10\n"  \
                     "mov frame+80(%%rip), %%r11\n mov frame+88(%%rip), %%r12\n mov frame+96(%%rip), %%r13\n"\
                     "mov frame+104(%%rip), %%r14\n mov frame+112(%%rip), %%r15\n"                           \
                     "mov frame(%%rip), %%rax\n"                                                            \
                     "pushq $0x8d7\n popfq\n"                                                               \
                     "1: " insn "\n"                                                                        \
                     "mov $0, %%ebx\n"                                                                      \
                     "2: mov %%rbx, seen(%%rip)\n mov frame+120(%%rip), %%rsp\n add $256, %%rsp\n pop %%rbp\n pop %%rbx\n cld\n" \
                     "movq %%xmm3, %[x]\n"                                                                  \
                     : [rip] "=m"(expect_rip), [res] "=m"(resume), [x] "=r"(xmm)                             \
                     :                                                                                      \
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",          \
                       "r14", "r15", "memory", "cc", "xmm3");                                              \
        printf("  went on with %lx, xmm3 %lx\n", (long)seen[0], (long)xmm);                                  \
    } while (0)

static void fill(void) {
    for (int i = 0; i < 15; i++) frame[i] = 0x1111111111111111ull * (i + 1);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 1 << 16);
    stack_t st = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    sigaltstack(&st, 0);
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    int all[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (int i = 0; i < 5; i++) sigaction(all[i], &a, 0);
    hole = mmap(0, 3 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    readonly = mmap(0, 1 << 12, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FILE *f = tmpfile();
    past = mmap(0, 1 << 13, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
    fill();
    frame[0] = (uint64_t)hole + 40;
    TRY("load", "mov (%%rax), %%rdx", hole + 40);
    TRY("load wide", "vmovdqu 8(%%rax), %%ymm1", hole + 48);
    TRY("modify", "lock addl $3, -4(%%rax)", hole + 36);
    frame[0] = (uint64_t)readonly + 8;
    TRY("store", "movl $1, (%%rax)", readonly + 8);
    TRY("store of a string", "xchg %%rax, %%rdi\n stosb\n", readonly + 8);
    frame[0] = (uint64_t)past + 4100;
    TRY("beyond the file", "movl $1, (%%rax)", past + 4100);
    frame[0] = 0x8000000000000000;
    TRY("no such address", "mov (%%rax), %%rdx", 0);
    frame[0] = (uint64_t)other_stack + 1;
    TRY("not aligned", "movaps (%%rax), %%xmm1", 0);
    TRY("divide", "xor %%edx, %%edx\n div %%dl", 0);
    TRY("undefined", "ud2", 0);
    TRY("breakpoint", "int3", 0);
    TRY("breakpoint of two bytes", ".byte 0xcd, 3", 0);
    TRY("halt", "hlt", 0);
    TRY("interrupt", "int $0x41", 0);
    TRY("input", "inb $0x10, %%al", 0);
    frame[0] = (uint64_t)hole + 64;
    TRY("jump to a hole", "jmp *%%rax", hole + 64);
    TRY("call of a hole", "call *%%rax", hole + 64);
    TRY("return to a hole", "push %%rax\n ret", hole + 64);
    frame[0] = (uint64_t)other_stack + 64;
    TRY("jump to data", "jmp *%%rax", other_stack + 64);
    frame[0] = (uint64_t)hole + 128;
    TRY("jump through a hole", "jmp *(%%rax)", hole + 128);
    TRY("call through a hole", "call *8(%%rax)", hole + 136);
    TRY("push in a hole", "mov %%rax, %%rsp\n push %%rbx", hole + 120);
    TRY("call in a hole", "mov %%rax, %%rsp\n call 3f\n 3: nop", hole + 120);
    TRY("indirect call in a hole", "mov %%rax, %%rsp\n lea 3f(%%rip), %%r11\n xchg %%r11, %%r12\n xchg %%r11, %%r12\n call *%%r11\n 3: nop", hole + 120);
    TRY("return in a hole", "mov %%rax, %%rsp\n ret", hole + 128);
    TRY("pop in a hole", "mov %%rax, %%rsp\n pop %%rdx", hole + 128);
    TRY("leave in a hole", "mov %%rax, %%rbp\n leave", hole + 128);
    /* A string operation that stops half way: counts and pointers show how far it came. */
    char *two = mmap(0, 1 << 13, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(two + 4096, 4096);
    frame[4] = (uint64_t)two, frame[5] = (uint64_t)two + 4000, frame[2] = 200;
    TRY("string half way", "cld\n rep movsb", two + 4096);
    printf("%d faults\n", count);
    return 0;
}
