/* System calls that read, write and fail, between loads and stores. */
#include "bare.h"
static u8 text[256];
static long results[16];
void start(long *stack) {
    results[0] = call(39, 0, 0, 0) > 0;
    results[1] = call(3, 999, 0, 0);
    long fd = call(2, (long)"/dev/zero", 0, 0);
    results[2] = call(0, fd, (long)text, 100);
    results[3] = call(3, fd, 0, 0);
    results[4] = call(0, -1, (long)text, 1);
    for (int i = 0; i < 100; i++) text[i] += (u8)('a' + i % 26);
    text[100] = '\n';
    call(1, OUTPUT, (long)text, 101);
    u64 sum = 0;
    for (int i = 0; i < 16; i++) sum += (u64)results[i] * (u64)i;
    print(sum);
    leave(1);
}
