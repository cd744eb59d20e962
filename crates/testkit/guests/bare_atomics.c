/* Locked and unlocked read-modify-writes of every width. */
#include "bare.h"
static u64 word[8] __attribute__((aligned(64)));
void start(long *stack) {
    u64 a = 1, b = 2;
    for (int i = 0; i < 10; i++) {
        __asm__ volatile("lock addq %1,%0" : "+m"(word[0]) : "r"(a) : "memory");
        __asm__ volatile("lock incl %0" : "+m"(word[1])::"memory");
        __asm__ volatile("lock xaddq %1,%0" : "+m"(word[2]), "+r"(a)::"memory");
        __asm__ volatile("xchgq %1,%0" : "+m"(word[3]), "+r"(a)::"memory");
        __asm__ volatile("lock orb $4,%0" : "+m"(word[4])::"memory");
        __asm__ volatile("addw $3,%0" : "+m"(word[5])::"memory");
        __asm__ volatile("negl %0\n notq %0" : "+m"(word[5])::"memory");
        u64 old = word[6];
        __asm__ volatile("lock cmpxchgq %2,%1" : "+a"(old), "+m"(word[6]) : "r"(old + 3) : "memory", "cc");
        old = 12345;
        __asm__ volatile("lock cmpxchgq %2,%1" : "+a"(old), "+m"(word[6]) : "r"(b) : "memory", "cc");
        __asm__ volatile("mfence" ::: "memory");
    }
    for (int i = 0; i < 7; i++) print(word[i]);
    leave(0);
}
