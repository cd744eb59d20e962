/* Executes single instructions on the processor and tells what they did.
 *
 * Reads requests from standard input and answers each on standard output, in
 * the layouts below (little endian, no padding beyond what is written). Each
 * request is one instruction with the whole register state before it; the
 * answer is the signal it raised, or the state after it. Memory lies in four
 * writable and four read-only arenas at fixed places with nothing mapped around
 * them, so that an access one byte too far shows as a fault.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARENAS 4
#define ARENA(i) (0x40000000ull + (uint64_t)(i) * 0x100000ull)
#define READONLY(i) (0x48000000ull + (uint64_t)(i) * 0x100000ull)
#define FIRST 0x10000ull
#define LENGTH 0x10000ull
#define CENTRE 0x18000ull
#define WINDOW 1024
#define CODE ((uint8_t *)0x30000000ull)

struct state {
    uint64_t gpr[16];
    uint64_t rflags;
    uint64_t unused;
    uint64_t k[8];
    uint8_t z[32][64];
    uint8_t fx[512] __attribute__((aligned(16)));
} __attribute__((aligned(64)));

struct request {
    uint32_t full;
    uint32_t length;
    uint8_t code[24];
};

struct answer {
    uint32_t signal;
    uint32_t error;
    uint64_t address;
};

struct state g_in, g_out;
uint64_t g_host_rsp;
uint64_t g_target = 0x30000000ull;
uint32_t g_mxcsr = 0x1f80;
int run(void);
extern char back[], recover[];

#define STR_(x) #x
#define STR(x) STR_(x)
#define Z_LOAD(i) "vmovdqu64 g_in+208+64*" STR(i) "(%rip), %zmm" STR(i) "\n"
#define Z_SAVE(i) "vmovdqu64 %zmm" STR(i) ", g_out+208+64*" STR(i) "(%rip)\n"
#define K_LOAD(i) "kmovq g_in+144+8*" STR(i) "(%rip), %k" STR(i) "\n"
#define K_SAVE(i) "kmovq %k" STR(i) ", g_out+144+8*" STR(i) "(%rip)\n"
#define EIGHT(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define THIRTYTWO(M) EIGHT(M) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15) M(16) M(17) M(18) \
    M(19) M(20) M(21) M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31)
#define G_LOAD(n, r) "mov g_in+8*" STR(n) "(%rip), %" r "\n"
#define G_SAVE(n, r) "mov %" r ", g_out+8*" STR(n) "(%rip)\n"
#define GPRS(M) M(0, "rax") M(1, "rcx") M(2, "rdx") M(3, "rbx") M(5, "rbp") M(6, "rsi") M(7, "rdi") \
    M(8, "r8") M(9, "r9") M(10, "r10") M(11, "r11") M(12, "r12") M(13, "r13") M(14, "r14") M(15, "r15")

__asm__(
    ".text\n.globl run, back, recover\n"
    "run:\n"
    "push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, g_host_rsp(%rip)\n"
    "fxrstor64 g_in+2256(%rip)\n"
    THIRTYTWO(Z_LOAD) EIGHT(K_LOAD)
    "lea g_in+128(%rip), %rsp\npopfq\n"
    GPRS(G_LOAD) G_LOAD(4, "rsp")
    "jmp *g_target(%rip)\n"
    "back:\n"
    GPRS(G_SAVE) G_SAVE(4, "rsp")
    "lea g_out+136(%rip), %rsp\npushfq\n"
    THIRTYTWO(Z_SAVE) EIGHT(K_SAVE)
    "fxsave64 g_out+2256(%rip)\n"
    "xor %eax, %eax\n"
    "leave_run:\n"
    "fninit\nldmxcsr g_mxcsr(%rip)\ncld\n"
    "mov g_host_rsp(%rip), %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\n"
    "vzeroupper\nret\n"
    "recover:\n"
    "mov $1, %eax\njmp leave_run\n");

static struct answer g_answer;

static void on_signal(int signal, siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    g_answer.signal = signal;
    g_answer.error = (uint32_t)uc->uc_mcontext.gregs[REG_ERR];
    g_answer.address = info->si_code == SI_KERNEL ? 0 : (uint64_t)info->si_addr;
    uc->uc_mcontext.gregs[REG_RIP] = (greg_t)recover;
    uc->uc_mcontext.gregs[REG_EFL] = 0x202;
}

static void map(uint64_t address, uint64_t length, int protection)
{
    void *got = mmap((void *)address, length, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != (void *)address) {
        perror("mmap");
        exit(2);
    }
}

static void all(void *buffer, size_t length, size_t (*move)(void *, size_t, size_t, FILE *), FILE *file)
{
    if (move(buffer, 1, length, file) != length)
        exit(feof(file) ? 0 : 2);
}

static size_t put(void *buffer, size_t size, size_t count, FILE *file)
{
    return fwrite(buffer, size, count, file);
}

int main(void)
{
    static uint8_t alternate[1 << 16];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
    alarm(120);
    /* Ask for the AMX tiles, which the kernel grants on request only. */
    syscall(SYS_arch_prctl, 0x1023, 18);
    for (int i = 0; i < ARENAS; i++) {
        map(ARENA(i) + FIRST, LENGTH, PROT_READ | PROT_WRITE);
        map(READONLY(i) + FIRST, LENGTH, PROT_READ);
    }
    map((uint64_t)CODE, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);

    struct request request;
    static uint8_t window[ARENAS][WINDOW];
    for (;;) {
        all(&request, sizeof request, fread, stdin);
        all(&g_in, sizeof g_in, fread, stdin);
        memcpy(CODE, request.code, sizeof request.code);
        /* jmp *0(%rip), and the address behind it. */
        uint8_t *end = CODE + request.length;
        memcpy(end, (uint8_t[]){0xff, 0x25, 0, 0, 0, 0}, 6);
        memcpy(end + 6, &(uint64_t){(uint64_t)back}, 8);
        if (request.full) {
            all(window, sizeof window, fread, stdin);
            for (int i = 0; i < ARENAS; i++)
                memcpy((void *)(ARENA(i) + CENTRE - WINDOW / 2), window[i], WINDOW);
        }
        memset(&g_answer, 0, sizeof g_answer);
        run();
        all(&g_answer, sizeof g_answer, put, stdout);
        if (request.full && !g_answer.signal) {
            for (int i = 0; i < ARENAS; i++)
                memcpy(window[i], (void *)(ARENA(i) + CENTRE - WINDOW / 2), WINDOW);
            all(&g_out, sizeof g_out, put, stdout);
            all(window, sizeof window, put, stdout);
        }
    }
}
