/* Code that changes under its own feet: written in place, in the same stretch, across a page
   border, through a second mapping, by the kernel, by flipping rights, behind a call that is not
   back yet, by moving, unmapping and mapping again; code on the stack; jumps into the middle of instructions; jumps to where there is no
   code, between changes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*function)(int);
enum { RWX = PROT_READ | PROT_WRITE | PROT_EXEC, RX = PROT_READ | PROT_EXEC, RW = PROT_READ | PROT_WRITE };

static unsigned char *anonymous(size_t len, int prot) {
    return mmap(0, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* mov eax, value; add eax, edi; ret */
static size_t write_function(unsigned char *at, int value) {
    unsigned char code[] = {0xb8, 0, 0, 0, 0, 0x01, 0xf8, 0xc3};
    memcpy(code + 1, &value, 4);
    memcpy(at, code, sizeof code);
    return sizeof code;
}

static void in_place(void) {
    unsigned char *page = anonymous(8192, RWX);
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        int v = i * 7;
        if (i % 3) memcpy(page + 1, &v, 4);
        else write_function(page, v);
        if (!i) write_function(page, v);
        sum += ((function)page)(i);
    }
    printf("in place %ld\n", sum);
    sum = 0;
    unsigned char *cross = page + 4096 - 3;
    for (int i = 0; i < 100; i++) {
        write_function(cross, i);
        sum += ((function)cross)(1);
        cross[2] = 1;
        sum += ((function)cross)(1);
    }
    printf("across pages %ld\n", sum);
    munmap(page, 8192);
}

/* A store that changes the very next instructions, in the same basic block:
   mov dword [rip+1+...], esi; mov eax, imm; ret. */
static void next_instruction(void) {
    unsigned char *page = anonymous(4096, RWX);
    unsigned char code[] = {
        0x89, 0x3d, 0x01, 0, 0, 0, /* mov [rip+1], edi: the immediate below */
        0xb8, 9, 0, 0, 0,          /* mov eax, 9 */
        0x83, 0xc0, 1,             /* add eax, 1 */
        0xc3,
    };
    memcpy(page, code, sizeof code);
    long sum = 0;
    for (int i = 0; i < 100; i++) sum += ((function)page)(i * 3);
    printf("next instruction %ld\n", sum);
    /* The same where the changed place comes after a jump and a call. */
    unsigned char more[] = {
        0x89, 0x3d, 0x04, 0, 0, 0, /* mov [rip+4], edi */
        0xeb, 0x01, 0xcc,          /* jmp over a trap */
        0xb8, 9, 0, 0, 0, 0xc3,
    };
    memcpy(page + 256, more, sizeof more);
    sum = 0;
    for (int i = 0; i < 100; i++) sum += ((function)(page + 256))(i);
    printf("next but one %ld\n", sum);
}

static void flips(void) {
    unsigned char *page = anonymous(4096, RW);
    long sum = 0;
    for (int i = 0; i < 100; i++) {
        write_function(page, i);
        mprotect(page, 4096, RX);
        sum += ((function)page)(i);
        mprotect(page, 4096, RW);
    }
    printf("flipped rights %ld\n", sum);
}

/* What comes behind a call changes before the call is back. */
static unsigned char *waiting;
static int next_value;
static void change_caller(void) {
    if (next_value % 3 == 0) return;
    mprotect(waiting, 4096, RW);
    memcpy(waiting + 17, &next_value, 4);
    mprotect(waiting, 4096, RX);
}
static void behind_calls(void) {
    unsigned char code[] = {
        0x48, 0x83, 0xec, 0x08,                /* sub rsp, 8 */
        0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,    /* mov rax, change_caller */
        0xff, 0xd0,                            /* call rax */
        0xb8, 1, 0, 0, 0,                      /* mov eax, 1 */
        0x48, 0x83, 0xc4, 0x08, 0xc3,          /* add rsp, 8; ret */
    };
    void (*callee)(void) = change_caller;
    memcpy(code + 6, &callee, 8);
    waiting = anonymous(4096, RW);
    memcpy(waiting, code, sizeof code);
    mprotect(waiting, 4096, RX);
    long sum = 0;
    for (next_value = 0; next_value < 200; next_value++) sum = sum * 3 % 1000003 + ((function)waiting)(0);
    printf("behind calls %ld\n", sum);
}

static void two_views(void) {
    int fd = memfd_create("code", 0);
    if (ftruncate(fd, 8192)) return;
    unsigned char *run = mmap(0, 8192, RX, MAP_SHARED, fd, 0);
    unsigned char *edit = mmap(0, 8192, RW, MAP_SHARED, fd, 0);
    long sum = 0;
    for (int i = 0; i < 100; i++) {
        write_function(edit + 100, i * 5);
        sum += ((function)(run + 100))(i);
    }
    printf("two views %ld\n", sum);
    /* A view that comes later, at another offset. */
    unsigned char *late = mmap(0, 4096, RW, MAP_SHARED, fd, 4096);
    write_function(edit + 4096, 1);
    sum = ((function)(run + 4096))(0);
    for (int i = 0; i < 100; i++) {
        write_function(late, i);
        sum += ((function)(run + 4096))(i);
    }
    printf("late view %ld\n", sum);
}

static void by_kernel(void) {
    unsigned char *page = anonymous(4096, RWX), code[16];
    int ends[2];
    long sum = 0;
    if (pipe(ends)) return;
    write_function(page, 1);
    sum += ((function)page)(1);
    for (int i = 0; i < 20; i++) {
        size_t n = write_function(code, i);
        if (write(ends[1], code, n) != (ssize_t)n || read(ends[0], page, n) != (ssize_t)n) {
            printf("the kernel cannot write code\n");
            return;
        }
        sum += ((function)page)(i);
    }
    printf("read into place %ld\n", sum);
    if (madvise(page, 4096, MADV_DONTNEED)) return;
    write_function(page, 77);
    printf("after it was dropped %d\n", ((function)page)(1));
    unsigned char *moved = mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, anonymous(4096, RW));
    write_function(moved, 78);
    printf("after it was moved %d\n", ((function)moved)(1));
}

static void again(void) {
    long sum = 0;
    unsigned char *at = anonymous(4096, RWX);
    for (int i = 0; i < 50; i++) {
        write_function(at, i);
        sum += ((function)at)(i);
        munmap(at, 4096);
        void *got = mmap(at, 4096, i % 2 ? RWX : RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (got != at) return;
        if (i % 2 == 0) mprotect(at, 4096, RWX);
    }
    printf("mapped again %ld\n", sum);
}

/* A nested function whose address is taken lives on the stack. */
static int apply(function f, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += f(i);
    return sum;
}
__attribute__((noinline)) static int on_stack(int k) {
    int local = k;
    int add(int x) { return local += x; }
    return apply(add, 10);
}

/* The same bytes read from two places: b8 c3 ... is mov eax, or ret. */
static void overlapping(void) {
    unsigned char *page = anonymous(4096, RWX);
    unsigned char code[] = {
        0xeb, 0x01,                         /* jmp into the middle of the next */
        0x05, 0xb8, 0x05, 0x00, 0x00, 0x00, /* add eax, imm | mov eax, 5 */
        0x90, 0xc3,
    };
    memcpy(page, code, sizeof code);
    unsigned char both[] = {
        0x31, 0xc0,                   /* xor eax, eax */
        0xb8, 0x83, 0xc0, 0x11, 0xc3, /* mov eax, 0xc311c083 | at +1: add eax, 0x11; ret */
        0xc3,
    };
    memcpy(page + 64, both, sizeof both);
    int a = ((function)page)(0), b = ((function)(page + 64))(0);
    int c;
    asm volatile("xor %%eax, %%eax\n call *%1" : "=&a"(c) : "r"(page + 67) : "memory", "cc", "rcx", "rdx", "rsi", "rdi");
    printf("overlapping %d %x %d\n", a, b, c);
}

/* One thread writes functions, others run them as soon as they are announced. */
static unsigned char *shared;
static int ready, wrong;
static void *runner(void *p) {
    for (int seen = 0; seen < 300;) {
        int now = __atomic_load_n(&ready, __ATOMIC_ACQUIRE);
        while (seen < now) {
            if (((function)(shared + seen * 16))(seen) != seen * 4) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
            seen++;
        }
    }
    return 0;
}
static void threads(void) {
    shared = anonymous(8192, RWX);
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, runner, 0);
    for (int i = 0; i < 300; i++) {
        write_function(shared + i * 16, i * 3);
        __atomic_store_n(&ready, i + 1, __ATOMIC_RELEASE);
    }
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    printf("threads run new code, %d wrong\n", wrong);
}

/* With an argument without what several threads do at once. */
static sigjmp_buf back;

static void jump_back(int number) {
    siglongjmp(back, number);
}

/* Between changes the program jumps to where there is no code, so that somebody may ask the kernel what there is. */
static void by_way_of_nowhere(void) {
    unsigned char *page = anonymous(4096, RWX), *none = anonymous(4096, RW);
    struct sigaction action = {.sa_handler = jump_back};
    sigaction(SIGSEGV, &action, 0);
    long sum = 0, caught = 0;
    for (int i = 0; i < 50; i++) {
        write_function(page, i * 11);
        sum += ((function)page)(i);
        if (sigsetjmp(back, 1)) caught++;
        else ((function)none)(i);
    }
    signal(SIGSEGV, SIG_DFL);
    printf("by way of nowhere %ld, %ld caught\n", sum, caught);
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    in_place();
    next_instruction();
    flips();
    behind_calls();
    two_views();
    by_kernel();
    again();
    printf("on the stack %d %d\n", on_stack(3), on_stack(4));
    overlapping();
    by_way_of_nowhere();
    if (argc == 1) threads();
    return 0;
}
