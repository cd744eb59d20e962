/* More memory than most have, filled and read by single instructions, and some of it searched backwards: so many KiB, 256 or more. */
#include "bare.h"
void start(long *stack) {
    u64 size = 0;
    for (const char *digit = stack[0] > 1 ? (const char *)stack[2] : "000256"; *digit; digit++)
        size = size * 10 + (u64)(*digit - '0');
    size <<= 10;
    /* Readable and writable; private, of no file, and not accounted for. */
    u8 *all = (u8 *)call6(9, 0, (long)size, 3, 0x4022, -1, 0);
    void *at = all;
    u64 left = size >> 3;
    /* The rest stays as it is: to read it takes no memory. */
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(left) : "a"(7) : "memory");
    u8 last = 1;
    at = all;
    left = size;
    __asm__ volatile("rep lodsb" : "+S"(at), "+c"(left), "+a"(last)::"memory");
    print(last);
    at = all + size - 1;
    left = 0x20000;
    __asm__ volatile("std\n repe scasb\n cld" : "+D"(at), "+c"(left) : "a"(0) : "memory", "cc");
    print(left);
    print((u64)((u8 *)at - all) == size - 0x20001);
    leave(0);
}
