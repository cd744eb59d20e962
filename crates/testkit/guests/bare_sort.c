/* Quicksort with recursion and indirect calls. */
#include "bare.h"
static u32 data[300];
static int up(u32 a, u32 b) { return a < b; }
static int down(u32 a, u32 b) { return a > b; }
static int (*volatile orders[2])(u32, u32) = {up, down};
static void sort(u32 *a, long n, int (*before)(u32, u32)) {
    if (n < 2) return;
    u32 pivot = a[n / 2];
    long i = 0, j = n - 1;
    while (i <= j) {
        while (before(a[i], pivot)) i++;
        while (before(pivot, a[j])) j--;
        if (i <= j) {
            u32 t = a[i];
            a[i++] = a[j];
            a[j--] = t;
        }
    }
    sort(a, j + 1, before);
    sort(a + i, n - i, before);
}
void start(long *stack) {
    for (int k = 0; k < 2; k++) {
        u32 x = 7;
        for (int i = 0; i < 300; i++) data[i] = x = x * 1103515245 + 12345;
        sort(data, 300, orders[k]);
        u64 sum = 0;
        for (int i = 0; i < 300; i++) sum = sum * 31 + data[i];
        print(sum);
    }
    leave(0);
}
