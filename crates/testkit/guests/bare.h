/* A program without any library: start, system calls, the least output. */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n call start\n hlt\n");
static inline long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
static inline long call6(long n, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long r;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}
#ifdef QUIET
#define OUTPUT -1
#else
#define OUTPUT 1
#endif
static void print(u64 n) {
    char text[24];
    int at = 24;
    text[--at] = '\n';
    do text[--at] = (char)('0' + n % 10);
    while (n /= 10);
    call(1, OUTPUT, (long)(text + at), 24 - at);
}
static __attribute__((noreturn)) void leave(int status) {
    for (;;) call(231, status, 0, 0);
}
