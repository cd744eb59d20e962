/* AVX2 and AVX-512: the C library's own string functions, masked moves,
   gathers and scatters, compressing stores. Prints sums to be compared. */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static unsigned char a[5000], b[5000];
static int table[256], out[64];
__attribute__((target("avx2"))) static int avx2(void) {
    __m256i index = _mm256_setr_epi32(1, 5, 9, 200, 3, 77, 0, 255);
    __m256i mask = _mm256_setr_epi32(-1, 0, -1, -1, 0, 0, -1, -1);
    __m256i zero = _mm256_setzero_si256();
    __m256i got = _mm256_mask_i32gather_epi32(zero, table, index, mask, 4);
    _mm256_maskstore_epi32(out, mask, got);
    __m256i again = _mm256_maskload_epi32(out, mask);
    _mm256_storeu_si256((__m256i *)(out + 8), _mm256_i32gather_epi32(table, index, 4));
    __m128i wide = _mm256_i64gather_epi32(table, _mm256_setr_epi64x(3, 6, 9, 12), 4);
    _mm256_storeu_si256((__m256i *)(out + 16), again);
    _mm_storeu_si128((__m128i *)(out + 24), wide);
    int sum = 0;
    for (int i = 0; i < 28; i++) sum = sum * 31 + out[i];
    return sum;
}
__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))) static int avx512(void) {
    __m512i index = _mm512_set_epi32(3, 9, 27, 81, 243, 2, 4, 8, 16, 32, 64, 128, 1, 0, 7, 5);
    __m512i got = _mm512_mask_i32gather_epi32(_mm512_set1_epi32(9), 0xa5c3, index, table, 4);
    _mm512_mask_i32scatter_epi32(table, 0x0ff1, index, _mm512_add_epi32(got, got), 4);
    _mm512_mask_storeu_epi32(out, 0x7e3c, got);
    _mm512_mask_compressstoreu_epi32(out + 16, 0x1249, got);
    __m512i back = _mm512_maskz_loadu_epi32(0xf00f, out);
    __m512i more = _mm512_maskz_expandloadu_epi32(0x3333, out + 3);
    __m512i bytes = _mm512_maskz_loadu_epi8(0x00ff00ff12345678, a + 100);
    _mm512_mask_storeu_epi8(b + 100, 0xfedcba9876543210, bytes);
    _mm512_storeu_si512(out + 32, _mm512_add_epi32(back, more));
    int sum = 0;
    for (int i = 0; i < 48; i++) sum = sum * 31 + out[i];
    for (int i = 0; i < 256; i++) sum = sum * 31 + table[i];
    for (int i = 100; i < 164; i++) sum = sum * 31 + b[i];
    return sum;
}
int main(int argc, char **argv) {
    for (int i = 0; i < 5000; i++) a[i] = (unsigned char)(i % 251 + 1);
    for (int i = 0; i < 256; i++) table[i] = i * i;
    a[4999] = 0;
    size_t n = 0;
    for (int i = 0; i < 70; i++) {
        memcpy(b + i, a + 2 * i, 3000 + i);
        memmove(b + i + 1, b + i, 100 + i);
        memset(b + 4000, i, 65 + i);
        n += strlen((char *)a + i) + (size_t)((char *)memchr(a + i, 200, 300) - (char *)a);
        n += memcmp(a, b, 100) < 0;
        n += strcmp((char *)a, (char *)b) < 0;
        n += (size_t)(strchr((char *)a, 77) - (char *)a);
    }
    printf("strings %zu %d\n", n, b[3000]);
    if (argc > 1 && atoi(argv[1]) >= 2) printf("avx2 %d\n", avx2());
    if (argc > 1 && atoi(argv[1]) >= 512) printf("avx512 %d\n", avx512());
    return 0;
}
