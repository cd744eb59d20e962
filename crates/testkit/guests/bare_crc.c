/* Table-driven CRC over bytes, and a bitwise one to compare; read-modify-write
   on memory; shifts, multiplications, divisions, conditional moves. */
#include "bare.h"
static u32 table[256];
static u8 text[2000];
static u64 counts[16];
void start(long *stack) {
    for (u32 i = 0; i < 256; i++) {
        u32 c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
        table[i] = c;
    }
    for (int i = 0; i < 2000; i++) text[i] = (u8)(i * 7 + i / 13);
    u32 crc = ~0u;
    for (int i = 0; i < 2000; i++) {
        crc = table[(crc ^ text[i]) & 255] ^ crc >> 8;
        counts[text[i] & 15]++;
        counts[text[i] % 7] ^= crc;
    }
    print(~crc);
    u64 sum = 0;
    for (int i = 0; i < 16; i++) sum += counts[i] / (u64)(i + 1);
    print(sum);
    leave(3);
}
