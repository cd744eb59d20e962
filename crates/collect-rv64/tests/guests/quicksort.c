// Sorts pseudo-random numbers by quicksort and prints a checksum.
#include <stdio.h>
#include <stdlib.h>

static void sort(int *a, long low, long high) {
    while (low < high) {
        int pivot = a[(low + high) / 2];
        long i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i <= j) {
                int t = a[i];
                a[i++] = a[j];
                a[j--] = t;
            }
        }
        if (j - low < high - i) {
            sort(a, low, j);
            low = i;
        } else {
            sort(a, i, high);
            high = j;
        }
    }
}

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 100000;
    int *a = malloc(n * sizeof *a);
    unsigned seed = 1;
    for (long i = 0; i < n; i++) a[i] = (int)((seed = seed * 1664525 + 1013904223) >> 4);
    sort(a, 0, n - 1);
    unsigned long sum = 0;
    for (long i = 0; i < n; i++) {
        if (i && a[i - 1] > a[i]) return 1;
        sum = sum * 31 + (unsigned)a[i];
    }
    printf("%lx\n", sum);
    return 0;
}
