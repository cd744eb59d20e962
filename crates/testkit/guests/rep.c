/* Repeated string instructions: whole, empty, stopped early, backwards, and
   stopped by a fault part-way, after which they go on. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char from[256], to[256];
static char *guard;
static volatile int faults;
static void on_fault(int s) {
    faults++;
    mprotect(guard, 4096, PROT_READ | PROT_WRITE);
}
static unsigned long movs(void *d, const void *s, unsigned long n) {
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    return n;
}
static unsigned long stos(void *d, int v, unsigned long n) {
    __asm__ volatile("rep stosl" : "+D"(d), "+c"(n) : "a"(v) : "memory");
    return n;
}
static unsigned long cmps(const void *a, const void *b, unsigned long n) {
    __asm__ volatile("repe cmpsb" : "+S"(a), "+D"(b), "+c"(n)::"memory", "cc");
    return n;
}
static unsigned long scas(const void *a, int v, unsigned long n) {
    __asm__ volatile("repne scasb" : "+D"(a), "+c"(n) : "a"(v) : "memory", "cc");
    return n;
}
static unsigned long lods(const void *s, unsigned long n) {
    unsigned long v = 0;
    __asm__ volatile("rep lodsq" : "+S"(s), "+c"(n), "+a"(v)::"memory");
    return v;
}
static void back(void *d, const void *s, unsigned long n) {
    __asm__ volatile("std\n rep movsb\n cld" : "+D"(d), "+S"(s), "+c"(n)::"memory");
}
int main(void) {
    for (int i = 0; i < 256; i++) from[i] = (char)i;
    movs(to, from, 100);
    movs(to + 100, from, 0);
    stos(to + 200, 0x41424344, 5);
    printf("left %lu %lu %lu\n", cmps(from, to, 256), cmps(from, from, 64), cmps(from, to, 0));
    printf("left %lu %lu\n", scas(from, 50, 256), scas(from, 255, 40));
    printf("last %lx\n", lods(from, 4));
    back(to + 250, from + 250, 40);
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    guard = pages + 4096;
    mprotect(guard, 4096, PROT_NONE);
    signal(SIGSEGV, on_fault);
    movs(guard - 50, from, 120);
    printf("faults %d, %d\n", faults, memcmp(guard - 50, from, 120));
    unsigned sum = 0;
    for (int i = 0; i < 256; i++) sum = sum * 31 + (unsigned char)to[i];
    printf("sum %u\n", sum);
    return 0;
}
