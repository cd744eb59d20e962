/* Code made at run time: rewritten in place, flipped between writable and
   executable, on the stack, and written through a second mapping. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
typedef int (*function)(void);
static void put(unsigned char *at, int value) {
    at[0] = 0xb8; /* mov $value,%eax; ret */
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
}
int main(void) {
    int sum = 0;
    unsigned char *both = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 5; i++) {
        put(both, i);
        sum = sum * 10 + ((function)both)();
    }
    printf("rewritten %d\n", sum);
    unsigned char *flip = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 5; i < 8; i++) {
        mprotect(flip, 4096, PROT_READ | PROT_WRITE);
        put(flip, i);
        mprotect(flip, 4096, PROT_READ | PROT_EXEC);
        sum = sum * 10 + ((function)flip)();
    }
    printf("flipped %d\n", sum);
    int fd = memfd_create("code", 0);
    if (ftruncate(fd, 4096)) return 1;
    unsigned char *w = mmap(0, 4096, 3, MAP_SHARED, fd, 0), *x = mmap(0, 4096, 5, MAP_SHARED, fd, 0);
    for (int i = 1; i < 4; i++) {
        put(w, i);
        sum = sum * 10 + ((function)x)();
    }
    printf("twice mapped %d\n", sum);
    unsigned char stack[4096 * 2];
    unsigned char *page = (unsigned char *)(((unsigned long)stack + 4095) & ~4095ul);
    mprotect(page, 4096, 7);
    put(page, 9);
    int got = ((function)page)();
    mprotect(page, 4096, 3);
    printf("on the stack %d\n", got);
    munmap(flip, 4096);
    unsigned char *again = mmap(flip, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    put(again, 77);
    mprotect(again, 4096, 5);
    printf("mapped again %d\n", ((function)again)());
    return 0;
}
