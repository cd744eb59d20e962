/* Primes in memory from mmap and from brk, with SSE2 copies between. */
#include <emmintrin.h>
#include "bare.h"
void start(long *stack) {
    enum { N = 4096 };
    u8 *sieve = (u8 *)call6(9, 0, N, 3, 0x22, -1, 0);
    u8 *heap = (u8 *)call(12, 0, 0, 0);
    call(12, (long)heap + 2 * N, 0, 0);
    for (u32 i = 2; i * i < N; i++)
        if (!sieve[i])
            for (u32 k = i * i; k < N; k += i) sieve[k] = 1;
    for (u32 i = 0; i < N; i += 16)
        _mm_storeu_si128((__m128i *)(heap + i), _mm_loadu_si128((__m128i *)(sieve + i)));
    u64 primes = 0;
    for (u32 i = 2; i < N; i++) primes += !heap[i];
    print(primes);
    call(11, (long)sieve, N, 0);
    leave(0);
}
