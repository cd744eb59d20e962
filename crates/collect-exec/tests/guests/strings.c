/* Repeated strings that fault on their way, forwards and backwards, and go on when the page was opened. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#define PAGE 4096
static char *all;
static int faults, leaves;
static sigjmp_buf out;
static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    faults++;
    if (leaves) siglongjmp(out, 1);
    mprotect((void *)((unsigned long)info->si_addr & -PAGE), PAGE, PROT_READ | PROT_WRITE);
}
static void closes(int page, int rights) {
    mprotect(all + page * PAGE, PAGE, rights);
}
static void moves(char *to, const char *from, unsigned long n) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
}
static void fills(void *to, unsigned long n) {
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(n) : "a"(0x0102030405060708) : "memory");
}
static void fills_down(void *to, unsigned long n) {
    __asm__ volatile("std\n rep stosl\n cld" : "+D"(to), "+c"(n) : "a"(0x11121314) : "memory");
}
static void loads(const void *from, unsigned long n) {
    unsigned long last = 0;
    __asm__ volatile("rep lodsw" : "+S"(from), "+c"(n), "+a"(last)::"memory");
}
static unsigned long finds(const void *in, int what, unsigned long n) {
    __asm__ volatile("repne scasb" : "+D"(in), "+c"(n) : "a"(what) : "memory", "cc");
    return n;
}
int main(void) {
    all = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    memset(all, 3, 16 * PAGE);
    for (int round = 0; round < 3; round++) {
        closes(2, PROT_NONE), moves(all + 2 * PAGE - 50, all, 120);
        closes(1, PROT_NONE), moves(all + 8 * PAGE, all + PAGE - 700, 3000);
        closes(3, PROT_READ), fills(all + 3 * PAGE - 804, 1000);
        /* The first of them, and in each of three pages. */
        closes(4, PROT_READ), fills(all + 4 * PAGE, 9);
        closes(5, PROT_NONE), closes(6, PROT_READ), closes(7, PROT_NONE), fills(all + 5 * PAGE - 8, 1300);
        closes(9, PROT_NONE), fills_down(all + 10 * PAGE + 802, 900);
        closes(11, PROT_NONE), loads(all + 11 * PAGE - 301, 4000);
        closes(12, PROT_NONE);
        all[13 * PAGE - 9] = 77;
        closes(12, PROT_NONE);
        printf("%lu\n", finds(all + 12 * PAGE - 90, 77, 9000));
        closes(14, PROT_READ), moves(all + 14 * PAGE - 33, all + 14 * PAGE - 32, 5000);
    }
    /* More than there can be of anything. */
    closes(15, PROT_READ), closes(1, PROT_NONE), leaves = 1;
    if (!sigsetjmp(out, 1)) fills(all + 14 * PAGE + 9, -1ul);
    if (!sigsetjmp(out, 1)) fills_down(all + 2 * PAGE + 40, -1ul);
    if (!sigsetjmp(out, 1)) loads(all, -2ul);
    __asm__ volatile("cld");
    closes(1, PROT_READ);
    unsigned long sum = 0;
    for (int i = 0; i < 16 * PAGE; i++) sum = sum * 31 + (unsigned char)all[i];
    printf("%d faults, %lu\n", faults, sum);
    return 0;
}
