// LU factors of a matrix, block by block: lu THREADS SIZE BLOCK contiguous|rows
// Blocks lie each by themselves (contiguous), or in the rows of the whole matrix.
#include "team.h"
#include <math.h>
#include <string.h>
static double *data;
static long n, block, blocks, pitch;
static int contiguous;
static double *at(long i, long j) {
    return contiguous ? data + (i * blocks + j) * block * block : data + i * block * n + j * block;
}
static double element(long i, long j) {
    return at(i / block, j / block)[i % block * pitch + j % block];
}
static double first(long i, long j) {
    unsigned long state = (unsigned long)(i * n + j) + 7;
    next_random(&state);
    return next_random(&state) % 1000 / 1000.0 + (i == j ? (double)n : 0.0);
}
static void diagonal(double *a) {
    for (long k = 0; k < block; k++)
        for (long i = k + 1; i < block; i++) {
            double f = a[i * pitch + k] /= a[k * pitch + k];
            for (long j = k + 1; j < block; j++) a[i * pitch + j] -= f * a[k * pitch + j];
        }
}
static void below(double *a, const double *d) {
    for (long i = 0; i < block; i++)
        for (long k = 0; k < block; k++) {
            double f = a[i * pitch + k] /= d[k * pitch + k];
            for (long j = k + 1; j < block; j++) a[i * pitch + j] -= f * d[k * pitch + j];
        }
}
static void right(double *a, const double *d) {
    for (long k = 0; k < block; k++)
        for (long i = k + 1; i < block; i++)
            for (long j = 0; j < block; j++) a[i * pitch + j] -= d[i * pitch + k] * a[k * pitch + j];
}
static void inner(double *restrict a, const double *b, const double *c) {
    for (long i = 0; i < block; i++)
        for (long k = 0; k < block; k++) {
            double f = b[i * pitch + k];
            for (long j = 0; j < block; j++) a[i * pitch + j] -= f * c[k * pitch + j];
        }
}
static int mine(int me, long i, long j) { return (i + j) % team_size == me; }
static void work(int me) {
    for (long k = 0; k < blocks; k++) {
        if (mine(me, k, k)) diagonal(at(k, k));
        meet();
        for (long i = k + 1; i < blocks; i++) {
            if (mine(me, i, k)) below(at(i, k), at(k, k));
            if (mine(me, k, i)) right(at(k, i), at(k, k));
        }
        meet();
        for (long i = k + 1; i < blocks; i++)
            for (long j = k + 1; j < blocks; j++)
                if (mine(me, i, j)) inner(at(i, j), at(i, k), at(k, j));
        meet();
    }
}
int main(int argc, char **argv) {
    n = argument(argc, argv, 2, 32);
    block = argument(argc, argv, 3, 8);
    contiguous = argc < 5 || strcmp(argv[4], "rows") != 0;
    blocks = n / block;
    n = blocks * block;
    pitch = contiguous ? block : n;
    data = malloc(n * n * sizeof *data);
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++) at(i / block, j / block)[i % block * pitch + j % block] = first(i, j);
    team_run((int)argument(argc, argv, 1, 2), work);
    double worst = 0;
    for (long i = 0; i < n; i += n / 8 + 1)
        for (long j = 0; j < n; j += n / 8 + 1) {
            double sum = 0;
            for (long k = 0; k <= i && k <= j; k++) sum += (k == i ? 1.0 : element(i, k)) * element(k, j);
            worst = fmax(worst, fabs(sum - first(i, j)));
        }
    printf("lu of %ld by %ld, %s: %s\n", n, n, contiguous ? "contiguous" : "rows", worst < 1e-6 * n ? "right" : "wrong");
    return worst < 1e-6 * n ? 0 : 1;
}
