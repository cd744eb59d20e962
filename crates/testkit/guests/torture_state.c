/* State of the processor that a program may rely on across every kind of transfer and call:
   x87 and SSE control words and sticky flags, the alignment-check flag, wide vector registers and
   masks, segment bases. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static void floating(void) {
    unsigned short control = 0x077f, old, seen, status;
    unsigned mx = 0x1f80 | 0x2000 | 0x8000, back;
    double r;
    asm volatile("fnstcw %0\n fldcw %1\n ldmxcsr %2\n" : "=m"(old) : "m"(control), "m"(mx));
    volatile double one = 1, three = 3, zero = 0;
    volatile double third = one / three;
    (void)(one / zero);
    syscall(SYS_getpid);
    asm volatile("fnstcw %0\n stmxcsr %1\n fnstsw %2" : "=m"(seen), "=m"(back), "=m"(status));
    printf("control %x mxcsr %x third %a\n", seen, back, third);
    asm volatile("fldcw %0\n" : : "m"(old));
    mx = 0x1f80;
    asm volatile("ldmxcsr %0" : : "m"(mx));
    asm volatile("fld1\n fldpi\n fldz\n mov $39, %%eax\n syscall\n fstp %%st(0)\n fadd %%st(1), %%st\n fstpl %0\n fstp %%st(0)\n" : "=m"(r) : : "rax", "rcx", "r11", "memory");
    printf("x87 stack %.15f\n", r);
    uint64_t mm;
    asm volatile("mov $0x1122334455667788, %%rax\n movq %%rax, %%mm5\n mov $39, %%eax\n syscall\n movq %%mm5, %0\n emms" : "=r"(mm) : : "rax", "rcx", "r11", "memory");
    printf("mmx %lx\n", (long)mm);
}

static volatile int misaligned;
static void on_bus(int s, siginfo_t *i, void *c) {
    ucontext_t *u = c;
    misaligned = i->si_code;
    u->uc_mcontext.gregs[REG_EFL] &= ~0x40000l;
}
static void alignment(void) {
    struct sigaction a = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &a, 0);
    char room[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    int v;
    asm volatile("pushfq\n orl $0x40000, (%%rsp)\n popfq\n mov 1(%1), %0\n pushfq\n andl $~0x40000, (%%rsp)\n popfq" : "=r"(v) : "r"(((uintptr_t)room + 3) & ~3ul) : "cc", "memory");
    printf("alignment check %d value read %d\n", misaligned, v != 0);
    long flag;
    asm volatile("pushfq\n orl $0x40000, (%%rsp)\n popfq\n mov $39, %%eax\n syscall\n pushfq\n pop %0\n pushfq\n andl $~0x40000, (%%rsp)\n popfq" : "=r"(flag) : : "rax", "rcx", "r11", "cc", "memory");
    printf("alignment flag after a call %ld\n", flag >> 18 & 1);
}

static volatile int came;
static void on_wipe(int s) {
    came++;
    asm volatile("vzeroall" ::: "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
}
static __attribute__((noinline)) void nothing(void) { asm volatile(""); }
__attribute__((target("avx2"))) static void wide(void) {
    signal(SIGUSR1, on_wipe);
    void (*volatile call)(void) = nothing;
    uint64_t in[4] = {1, 22, 333, 4444}, out[4];
    int pid = getpid();
    asm volatile("vmovdqu (%1), %%ymm5\n vmovdqu (%1), %%ymm15\n call *%3\n mov $62, %%eax\n mov %2, %%edi\n mov $10, %%esi\n syscall\n vpaddq %%ymm5, %%ymm15, %%ymm5\n vmovdqu %%ymm5, (%0)\n vzeroupper"
                 : : "r"(out), "r"(in), "r"(pid), "r"(call) : "rax", "rcx", "rdi", "rsi", "r11", "memory", "cc", "xmm5", "xmm15");
    printf("ymm %ld %ld %ld %ld, %d signals\n", (long)out[0], (long)out[1], (long)out[2], (long)out[3], came);
}
__attribute__((target("avx512f,avx512bw"))) static void wider(void) {
    void (*volatile call)(void) = nothing;
    uint64_t in[8], out[8], mask;
    for (int i = 0; i < 8; i++) in[i] = i * 1111;
    int pid = getpid();
    asm volatile("mov $0x5a5a5a5aa5a5a5a5, %%rax\n kmovq %%rax, %%k5\n vmovdqu64 (%1), %%zmm5\n vmovdqu64 (%1), %%zmm29\n call *%3\n mov $62, %%eax\n mov %2, %%edi\n mov $10, %%esi\n syscall\n vpaddq %%zmm5, %%zmm29, %%zmm5\n vmovdqu64 %%zmm5, (%0)\n kmovq %%k5, %4\n vzeroupper"
                 : : "r"(out), "r"(in), "r"(pid), "r"(call), "m"(mask) : "rax", "rcx", "rdi", "rsi", "r11", "memory", "cc", "xmm5");
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++) sum = sum * 31 + out[i];
    printf("zmm %lx mask %lx\n", (long)sum, (long)mask);
    /* A masked store that touches nothing across a hole. */
    char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(two + 4096, 4096);
    _mm512_mask_storeu_epi8(two + 4096 - 8, 0xff, _mm512_set1_epi8(3));
    __m512i loaded = _mm512_maskz_loadu_epi8(0xff, two + 4096 - 8);
    printf("masked %d\n", (int)_mm512_reduce_add_epi64(loaded) == 0x03030303);
    int table[16] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    __m512i index = _mm512_set_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    printf("gather %d\n", _mm512_reduce_add_epi32(_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xf0f3, index, table, 4)));
}

static void *bases(void *p) {
    uint64_t gs = 1, fs = 0, again = 0, self;
    uint64_t block[4] = {11, 22, 33, 44};
    syscall(SYS_arch_prctl, ARCH_GET_FS, &fs);
    asm volatile("mov %%fs:0, %0" : "=r"(self));
    syscall(SYS_arch_prctl, ARCH_SET_GS, block);
    syscall(SYS_arch_prctl, ARCH_GET_GS, &gs);
    printf("fs %d gs %d\n", fs == self, gs == (uint64_t)block);
    syscall(SYS_arch_prctl, ARCH_SET_FS, block);
    asm volatile("mov %%fs:8, %0" : "=r"(again));
    asm volatile("syscall" : : "a"(SYS_arch_prctl), "D"(ARCH_SET_FS), "S"(fs) : "rcx", "r11", "memory");
    printf("own fs %ld\n", (long)again);
    return 0;
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    floating();
    alignment();
    if (__builtin_cpu_supports("avx2")) wide();
    if (__builtin_cpu_supports("avx512bw")) wider();
    bases(0);
    pthread_t t;
    pthread_create(&t, 0, bases, 0);
    pthread_join(t, 0);
    return 0;
}
