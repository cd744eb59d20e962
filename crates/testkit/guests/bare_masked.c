/* AVX-512 accesses of which a mask says how many bytes they touch: the first lanes, none, all, and some with holes,
   at all places within a line and across two, between accesses that are not aligned. Prints sums to be compared. */
#include <immintrin.h>
#include "bare.h"
typedef u64 anywhere __attribute__((may_alias, aligned(1)));
static u8 from[1300], to[2300];
static u64 sum;
static u64 first(u32 lanes) { return lanes >= 64 ? ~0ul : (1ul << lanes) - 1; }
static void bytes(u32 lanes, u32 at, u64 holes) {
    u64 mask = first(lanes) & ~holes;
    __m512i wide = _mm512_maskz_loadu_epi8(mask, from + at);
    _mm512_mask_storeu_epi8(to + 3 * at, mask, wide);
    __m256i half = _mm256_maskz_loadu_epi8((__mmask32)mask, from + at + 7);
    sum += _mm256_mask_cmpneq_epu8_mask((__mmask32)mask, half, *(__m256i_u *)(from + at + 5));
    _mm_mask_storeu_epi8(to + at, (__mmask16)mask, _mm256_castsi256_si128(half));
}
static void words(u32 lanes, u32 at, u64 holes) {
    u64 mask = first(lanes) & ~holes;
    __m512i wide = _mm512_maskz_loadu_epi32((__mmask16)mask, from + at);
    _mm512_mask_storeu_epi64(to + at, (__mmask8)mask, wide);
    __m128i two = _mm_maskz_loadu_epi64((__mmask8)mask, from + at);
    _mm256_mask_storeu_epi16(to + 2 * at, (__mmask16)mask, _mm512_castsi512_si256(wide));
    _mm_mask_storeu_epi32(to + at, (__mmask8)mask, two);
}
void start(long *stack) {
    for (u32 i = 0; i < sizeof from; i++) from[i] = (u8)(i * 7 + i / 64);
    for (u32 at = 0; at < 130; at += 5)
        for (u32 lanes = 0; lanes <= 64; lanes++) {
            bytes(lanes, at, lanes % 5 == 4 ? 0x10204 : 0);
            words(lanes % 17, at + 1000, lanes % 7 == 3 ? 2 : 0);
            sum += *(anywhere *)(from + at + lanes);
        }
    for (u32 i = 0; i < sizeof to; i++) sum = sum * 31 + to[i];
    print(sum);
    leave(0);
}
