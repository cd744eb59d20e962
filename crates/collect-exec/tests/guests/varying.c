// Instructions whose accesses vary: repeated strings in both directions, masks, gathers and scatters.
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char a[4096], b[4096];
static int indices[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 97, 93, 23, 84, 62};
static int numbers[256];

static void copy(const char *what, void *to, const void *from, uint64_t n, int back) {
    if (!strcmp(what, "b") && back)
        __asm__ volatile("std; rep movsb; cld" : "+D"(to), "+S"(from), "+c"(n)::"memory");
    else if (!strcmp(what, "b"))
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n)::"memory");
    else if (back)
        __asm__ volatile("std; rep movsq; cld" : "+D"(to), "+S"(from), "+c"(n)::"memory");
    else
        __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(n)::"memory");
}

static void strings(void) {
    for (uint64_t n = 0; n < 5; n++) {
        copy("b", b, a, n * 7, 0);
        copy("b", b + 200, a + 200, n * 3, 1);
        copy("q", b, a, n, 0);
        copy("q", b + 512, a + 512, n, 1);
        copy("b", b + 13, a + 29, 300 * n, 0);
        copy("b", b + 2013, a + 2029, 300 * n, 1);
        copy("q", b + 5, a, 40 * n, 0);
        copy("q", b + 2005, a + 2000, 40 * n, 1);
        void *to = b;
        uint64_t count = n;
        __asm__ volatile("rep stosl" : "+D"(to), "+c"(count) : "a"(0x55aa) : "memory");
        to = b, count = n;
        __asm__ volatile("std; rep stosw; cld" : "+D"(to), "+c"(count) : "a"(7) : "memory");
        const void *from = a;
        count = n;
        __asm__ volatile("rep lodsb" : "+S"(from), "+c"(count)::"rax", "memory");
        const void *x = a, *y = b;
        count = 64 * n;
        __asm__ volatile("cmp %%eax, %%eax; repe cmpsb" : "+S"(x), "+D"(y), "+c"(count)::"cc", "memory");
        x = a, count = 100 * n;
        __asm__ volatile("or $1, %%ecx; repne scasb" : "+D"(x), "+c"(count) : "a"(90) : "cc", "memory");
    }
}

__attribute__((target("avx2"))) static void avx2(void) {
    int masks[8] = {-1, 0, -1, -1, 0, 0, -1, 0};
    __asm__ volatile("vmovdqu %0, %%ymm1\n"
                     "vpmaskmovd %1, %%ymm1, %%ymm0\n"
                     "vpmaskmovd %%ymm0, %%ymm1, %1\n"
                     "vmovdqu %2, %%ymm2\n"
                     "vmovdqu %0, %%ymm1\n"
                     "vpgatherdd %%ymm1, (%3,%%ymm2,4), %%ymm0\n"
                     "vzeroupper"
                     : : "m"(masks), "m"(numbers[8]), "m"(indices), "r"(numbers)
                     : "xmm0", "xmm1", "xmm2", "memory");
}

__attribute__((target("avx512f,avx512bw,avx512vl"))) static void avx512(unsigned mask) {
    uint64_t wide = 0x8000000180000001 ^ (uint64_t)mask << 16;
    __asm__ volatile("kmovq %0, %%k1\n"
                     "vmovdqu8 (%2), %%zmm16%{%%k1%}%{z%}\n"
                     "vmovdqu8 %%zmm16, (%3)%{%%k1%}\n"
                     "kmovd %1, %%k2\n"
                     "vmovdqu32 (%2), %%ymm17%{%%k2%}%{z%}\n"
                     "vpcompressd %%zmm16, (%3)%{%%k2%}\n"
                     "vpaddd (%2)%{1to16%}, %%zmm16, %%zmm18%{%%k2%}\n"
                     "vpcmpub $4, (%2), %%ymm17, %%k3%{%%k1%}\n"
                     "vmovdqu32 %4, %%zmm20\n"
                     "kmovd %1, %%k4\n"
                     "vpgatherdd (%5,%%zmm20,4), %%zmm19%{%%k4%}\n"
                     "kmovd %1, %%k4\n"
                     "vpscatterdd %%zmm19, (%5,%%zmm20,4)%{%%k4%}\n"
                     "vzeroupper"
                     : : "r"(wide), "r"(mask), "r"(a), "r"(b), "m"(indices), "r"(numbers)
                     : "memory");
}

int main(void) {
    for (int i = 0; i < 4096; i++) a[i] = (unsigned char)(i * 7);
    memcpy(b, a, sizeof b);
    b[150] ^= 1;
    strings();
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) avx2();
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        for (unsigned mask = 1; mask < 0x20000; mask *= 3) avx512(mask & 0xffff);
    unsigned sum = 0;
    for (int i = 0; i < 4096; i++) sum = sum * 31 + b[i];
    printf("%u\n", sum);
    return 0;
}
