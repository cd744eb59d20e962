/* Repeated string instructions, also backwards, empty and stopped early (but not
   rep lods, which Valgrind executes only once); single ones (but not cmps, which
   it refuses as it does xlat); push and pop of memory, enter and leave, bit tests
   in memory. */
#include "bare.h"
static u8 from[200], to[200];
static u64 words[8];
void start(long *stack) {
    for (int i = 0; i < 200; i++) from[i] = (u8)(i + 1);
    void *d = to, *s = from;
    u64 n = 100, a = 0;
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    n = 5;
    __asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    n = 0;
    __asm__ volatile("rep movsl" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    n = 9;
    __asm__ volatile("rep stosw" : "+D"(d), "+c"(n) : "a"(0x1234) : "memory");
    d = to;
    s = from;
    n = 200;
    __asm__ volatile("repe cmpsb" : "+D"(d), "+S"(s), "+c"(n)::"memory", "cc");
    print(n);
    d = to;
    n = 200;
    __asm__ volatile("repne scasb" : "+D"(d), "+c"(n) : "a"(77) : "memory", "cc");
    print(n);
    d = to;
    n = 20;
    __asm__ volatile("repne scasl" : "+D"(d), "+c"(n) : "a"(0) : "memory", "cc");
    print(n);
    d = to + 150;
    s = from + 150;
    n = 20;
    __asm__ volatile("std\n rep movsb\n cld" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    d = to;
    s = from;
    __asm__ volatile("movsb\n movsw\n movsl\n movsq\n lodsb\n stosb\n scasb"
                     : "+D"(d), "+S"(s), "+a"(a)::"memory", "cc");
    __asm__ volatile("pushq (%0)\n popq 8(%0)\n pushq $5\n popq 16(%0)\n pushw %%ax\n popw %%ax" ::"r"(words)
                     : "memory");
    __asm__ volatile("enter $32,$0\n mov %%rax,-8(%%rbp)\n leave" ::: "memory");
    __asm__ volatile("btsl $7,(%0)\n btl $3,8(%0)\n btcq $5,16(%0)" ::"r"(words) : "memory", "cc");
    print(words[0] + words[1] + words[2] + words[5]);
    u64 sum = 0;
    for (int i = 0; i < 200; i++) sum = sum * 31 + to[i];
    print(sum);
    leave(0);
}
