/* setjmp and longjmp over many frames. */
#include <setjmp.h>
#include <stdio.h>
static jmp_buf back;
static int deep(int n) {
    if (n == 0) longjmp(back, 42);
    return deep(n - 1) + n;
}
int main(void) {
    volatile int tries = 0;
    int value = setjmp(back);
    tries++;
    if (tries < 4) deep(20 * tries);
    printf("value %d after %d tries\n", value, tries);
    return value;
}
