/* System calls by the 32-bit interface from 64-bit code. Prints nothing if the
   kernel has no such interface: it dies by a signal then, traced or not. */
#include <stdio.h>
#include <unistd.h>
int main(void) {
    int pid, bad;
    __asm__ volatile("int $0x80" : "=a"(pid) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    __asm__ volatile("int $0x80" : "=a"(bad) : "a"(6), "b"(999) : "memory", "r8", "r9", "r10", "r11");
    printf("same process %d, refused %d\n", pid == getpid(), bad);
    return 0;
}
