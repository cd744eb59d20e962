/* What few programs do: operands that gs leads to, calls of 32-bit programs, transactions, far jumps, jumps to
   addresses that cannot be, string instructions that fault halfway, alignment checks. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static uint64_t start_rip;

static void on_fault(int number, siginfo_t *info, void *context) {
    mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
    printf("  signal %d code %d trap %lld error %lld", number, info->si_code,
           m->gregs[REG_TRAPNO], m->gregs[REG_ERR]);
    printf(" address %d", info->si_addr == (void *)m->gregs[REG_RIP] ? 2 : info->si_addr != 0);
    printf(" at %lld rcx %llx rdi %llx rsi %llx\n", m->gregs[REG_RIP] - (long long)start_rip,
           m->gregs[REG_RCX], m->gregs[REG_RDI] & 0xfff, m->gregs[REG_RSI] & 0xfff);
    m->gregs[REG_EFL] &= ~0x40000;
    siglongjmp(back, 1);
}

static void watch(int number) {
    struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigaction(number, &a, 0);
}

static uint64_t block[64];
static uint8_t bytes[256], more[256];

static void set_gs(void *base) { syscall(SYS_arch_prctl, 0x1001, base); }
static void target(void) { printf("  reached through gs\n"); }

static void segments(void) {
    for (int i = 0; i < 64; i++) block[i] = i * 0x0101010101010101ull;
    set_gs(block);
    uint64_t v, w, x = 3;
    asm volatile("mov %%gs:0x18, %0" : "=r"(v));
    asm volatile("mov %%gs:8(%1,%1,8), %0" : "=r"(w) : "r"(x - 3));
    printf("gs absolute %lx, base and index %lx\n", v, w);
    asm volatile("movq $7, %%gs:0x20\n addq $5, %%gs:(,%0,8)" ::"r"(x) : "memory", "cc");
    asm volatile("lock xadd %0, %%gs:(%1)" : "+r"(v) : "r"(x * 8) : "memory", "cc");
    printf("stored %lx %lx, was %lx\n", block[4], block[3], v);
    asm volatile("mov %%gs:(%%esi), %0" : "=r"(v) : "S"(0xffffffff00000010ull));
    asm volatile("mov %%rax, %%rbx\n pushq %%gs:8\n popq %%gs:0x30\n mov %%rsp, %%rax" : "=a"(w)::"rbx", "memory");
    printf("narrow %lx, pushed %lx\n", v, block[6]);
    asm volatile("movabs %%gs:0x28, %%rax" : "=a"(v));
    asm volatile("movdqu %%gs:0x40, %%xmm1\n movq %%xmm1, %0" : "=r"(w)::"xmm1");
    printf("offset alone %lx, vector %lx\n", v, w);
    memset(bytes, 0, sizeof bytes);
    asm volatile("cld\n rep movsb %%gs:(%%rsi), (%%rdi)" ::"S"(8ull), "D"(bytes), "c"(24ull) : "memory");
    asm volatile("lodsq %%gs:(%%rsi)" : "=a"(v), "+S"(x)::"memory");
    printf("strings %x %x, %lx %lx\n", bytes[0], bytes[23], v, x);
    uint8_t al;
    asm volatile("xlatb %%gs:(%%rbx)" : "=a"(al) : "a"(9), "b"(8ull));
    printf("table %x\n", al);
    block[10] = (uint64_t)target;
    uint64_t index = 10;
    asm volatile("sub $128, %%rsp\n call *%%gs:(,%0,8)\n add $128, %%rsp" : "+r"(index)::"rax", "rcx", "rdx",
                 "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1");
    block[11] = 0;
    asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %%gs:0x58\n jmp *%%gs:0x58\n ud2\n 1:" ::: "rax", "memory");
    uint32_t low = 0;
    uint64_t base = 0;
    asm volatile("rdgsbase %0" : "=r"(base));
    asm volatile("rdgsbase %0" : "=r"(low));
    printf("base %d %d\n", base == (uint64_t)block, low == (uint32_t)(uint64_t)block);
    asm volatile("wrgsbase %0" ::"r"(block + 2));
    asm volatile("mov %%gs:0, %0" : "=r"(v));
    uint16_t selector = 7;
    asm volatile("mov %%gs, %0" : "=r"(selector));
    printf("moved base %lx, selector %x\n", v, selector);
    asm volatile("lea %%gs:8(%1), %0" : "=r"(v) : "r"(x));
    printf("lea %lx\n", v - x);
    watch(SIGSEGV);
    if (!sigsetjmp(back, 1)) {
        asm volatile("mov $0x1122, %%ecx\n mov $0x33, %%edi\n mov $0x44, %%esi\n"
                     "lea 1f(%%rip), %%rax\n mov %%rax, %0\n 1: mov %%gs:-0x100000(,%%rcx,8), %%rax"
                     : "=m"(start_rip)::"rax", "rcx", "rdi", "rsi", "memory");
    }
    asm volatile("mov %0, %%gs" ::"r"((uint16_t)0));
    asm volatile("rdgsbase %0" : "=r"(base));
    printf("after a null selector %lx\n", base);
}

static void old_calls(int numbers) {
    char *text = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    strcpy(text, "written by int 0x80\n");
    fflush(stdout);
    long r;
    asm volatile("int $0x80" : "=a"(r) : "a"(4), "b"(1), "c"(text), "d"(strlen(text)) : "memory");
    printf("old write %ld\n", r);
    if (numbers) {
        asm volatile("int $0x80" : "=a"(r) : "a"(20));
        printf("old getpid %d\n", r == getpid());
    }
    asm volatile("int $0x80" : "=a"(r) : "a"(6), "b"(999));
    printf("old close %ld\n", r);
    asm volatile("int $0x80" : "=a"(r) : "a"(91), "b"(text), "c"(4096) : "memory");
    printf("old munmap %ld\n", r);
    uint64_t rcx = 5, r11 = 6;
    asm volatile("mov $6, %%r11\n int $0x80\n mov %%r11, %2" : "=a"(r), "+c"(rcx), "=r"(r11) : "0"(199) : "r11");
    printf("old getuid %d keeps %lx %lx\n", r == getuid(), rcx, r11);
}

static void transactions(void) {
    unsigned a, b = 0, c, d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    printf("transactions %d\n", b >> 11 & 1);
    watch(SIGILL);
    int status = 1;
    if (!sigsetjmp(back, 1)) {
        asm volatile("lea 2f(%%rip), %%rax\n mov %%rax, %1\n mov $-1, %%eax\n 2: xbegin 1f\n xend\n 1: mov %%eax, %0"
                     : "=r"(status), "=m"(start_rip)::"eax", "rax", "memory", "cc");
        printf("begun or not\n");
    }
    uint8_t none = 2;
    if (!sigsetjmp(back, 1)) {
        asm volatile("lea 2f(%%rip), %%rax\n mov %%rax, %1\n 2: xtest\n setz %0"
                     : "=r"(none), "=m"(start_rip)::"rax", "memory", "cc");
        printf("in none %d\n", none);
    }
}

static void far_jumps(void) {
    struct { uint64_t offset; uint16_t selector; } __attribute__((packed)) far = { 0, 0x33 };
    uint64_t r = 0;
    asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, (%1)\n rex.w ljmp *(%1)\n ud2\n 1: mov $1, %0"
                 : "=r"(r) : "r"(&far) : "rax", "memory");
    printf("far jump %lu\n", r);
    asm volatile("sub $128, %%rsp\n mov %%ss, %%eax\n push %%rax\n lea 8(%%rsp), %%rcx\n push %%rcx\n pushfq\n mov %%cs, %%eax\n push %%rax\n"
                 "lea 1f(%%rip), %%rax\n push %%rax\n iretq\n ud2\n 1: add $128, %%rsp\n mov $2, %0"
                 : "=r"(r)::"rax", "rcx", "memory", "cc");
    printf("interrupt return %lu\n", r);
    asm volatile("sub $128, %%rsp\n mov %%cs, %%eax\n push %%rax\n lea 1f(%%rip), %%rax\n push %%rax\n rex.w lret\n ud2\n 1: add $128, %%rsp\n mov $3, %0"
                 : "=r"(r)::"rax", "memory", "cc");
    printf("far return %lu\n", r);
}

static void strange_targets(void) {
    watch(SIGSEGV);
    watch(SIGBUS);
    const uint64_t bad = 0x8000000000001234ull;
    printf("call to nowhere\n");
    if (!sigsetjmp(back, 1))
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n mov $1, %%ecx\n mov $2, %%edi\n mov $3, %%esi\n 1: call *%1"
                     : "=m"(start_rip) : "r"(bad) : "rax", "rcx", "rdi", "rsi", "memory");
    printf("call through memory to nowhere\n");
    block[0] = bad;
    if (!sigsetjmp(back, 1))
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n mov $1, %%ecx\n mov $2, %%edi\n mov $3, %%esi\n 1: call *%1"
                     : "=m"(start_rip) : "m"(block[0]) : "rax", "rcx", "rdi", "rsi", "memory");
}

static void strings(void) {
    uint8_t *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + 4096, 4096, PROT_NONE);
    printf("store beyond\n");
    if (!sigsetjmp(back, 1))
        asm volatile("lea 1f(%%rip), %%rdx\n mov %%rdx, %0\n xor %%esi, %%esi\n 1: rep stosq"
                     : "=m"(start_rip) : "D"(pages + 4096 - 40), "c"(100ull), "a"(0x5a5a5a5a5a5a5a5aull) : "rdx", "rsi", "memory");
    printf("  last %x %x\n", pages[4095], pages[4096 - 41]);
    printf("move beyond\n");
    if (!sigsetjmp(back, 1))
        asm volatile("lea 1f(%%rip), %%rdx\n mov %%rdx, %0\n 1: rep movsb"
                     : "=m"(start_rip) : "D"(more), "S"(pages + 4096 - 50), "c"(100ull) : "rdx", "memory");
    printf("  moved %x %x\n", more[49], more[50]);
    printf("move beyond by gs\n");
    set_gs(pages);
    if (!sigsetjmp(back, 1))
        asm volatile("lea 1f(%%rip), %%rdx\n mov %%rdx, %0\n 1: rep movsb %%gs:(%%rsi), (%%rdi)"
                     : "=m"(start_rip) : "D"(more), "S"(4096 - 30ull), "c"(100ull) : "rdx", "memory");
    set_gs(0);
    printf("compare beyond\n");
    memcpy(more, pages + 4096 - 16, 16);
    if (!sigsetjmp(back, 1))
        asm volatile("lea 1f(%%rip), %%rdx\n mov %%rdx, %0\n 1: repe cmpsb"
                     : "=m"(start_rip) : "D"(more), "S"(pages + 4096 - 16), "c"(100ull) : "rdx", "memory", "cc");
    munmap(pages, 8192);
}

static void alignment(void) {
    watch(SIGBUS);
    uint64_t v = 1;
    printf("aligned under checks\n");
    block[0] = 5;
    asm volatile("pushfq\n orl $0x40000, (%%rsp)\n popfq\n mov (%1), %0\n add 8(%1), %0\n"
                 "pushfq\n andl $~0x40000, (%%rsp)\n popfq" : "=&r"(v) : "r"(block) : "memory", "cc");
    printf("misaligned under checks\n");
    if (!sigsetjmp(back, 1)) {
        asm volatile("lea 1f(%%rip), %%rax\n mov %%rax, %0\n mov $1, %%ecx\n mov $2, %%edi\n mov $3, %%esi\n"
                     "pushfq\n orl $0x40000, (%%rsp)\n popfq\n mov (%1), %%rax\n mov 16(%1), %%rax\n 1: mov 1(%1), %%rax\n"
                     "pushfq\n andl $~0x40000, (%%rsp)\n popfq" : "=m"(start_rip) : "r"(block) : "rax", "rcx", "rdi", "rsi", "memory", "cc");
        printf("  not noticed\n");
    }
    asm volatile("pushfq\n andl $~0x40000, (%%rsp)\n popfq" ::: "memory", "cc");
}

/* With an argument without the system's numbers of processes, and without transactions. */
int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    segments();
    old_calls(argc == 1);
    if (argc == 1) transactions();
    far_jumps();
    strange_targets();
    strings();
    alignment();
    printf("done\n");
    return 0;
}
