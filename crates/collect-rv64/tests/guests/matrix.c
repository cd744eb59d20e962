// Multiplies two matrices of doubles and prints a checksum.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 60;
    double *a = malloc(sizeof *a * n * n), *b = malloc(sizeof *b * n * n), *c = calloc(sizeof *c, n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = (i * 37 % 101) / 7.0;
        b[i] = (i * 53 % 97) / 11.0;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
    double sum = 0;
    for (int i = 0; i < n * n; i++) sum += c[i] / (1 + i % 13);
    printf("%.17g\n", sum);
    return 0;
}
