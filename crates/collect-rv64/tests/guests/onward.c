/* Jumps and branches to what follows them: taken, and yet control goes on. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static long onward(long x) {
    __asm__ volatile(
        ".option push\n.option norvc\n"
        "beq x0, x0, 1f\n1:\n"
        "j 2f\n2:\n"
        "la t0, 3f\njr t0\n3:\n"
        "bnez %0, 4f\n4:\n"
        "addi %0, %0, 3\n"
        ".option pop\n"
        : "+r"(x)
        :
        : "t0");
    return x;
}

int main(int argc, char **argv) {
    long sum = 0;
    for (int i = 0; i < (argc > 1 ? atoi(argv[1]) : 100); i++) sum += onward(i & 1);
    printf("%ld\n", sum);
    return 0;
}
