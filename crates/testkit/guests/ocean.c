// Red-black relaxation of a square of water, with coarser grids below: ocean THREADS SIZE TURNS
#include "team.h"
#include <math.h>
#define LEVELS 4
static double **value[LEVELS], **source[LEVELS];
static long size[LEVELS], turns;
static double *errors;
static double **grid(long n) {
    double **rows = malloc((n + 2) * sizeof *rows);
    for (long i = 0; i < n + 2; i++) rows[i] = calloc(n + 2, sizeof **rows);
    return rows;
}
static void relax(int me, int level) {
    long from, to, n = size[level];
    double **v = value[level], **s = source[level];
    share(me, n, &from, &to);
    for (int colour = 0; colour < 2; colour++) {
        for (long i = from + 1; i <= to; i++)
            for (long j = 1 + (i + colour) % 2; j <= n; j += 2)
                v[i][j] = 0.25 * (v[i - 1][j] + v[i + 1][j] + v[i][j - 1] + v[i][j + 1] - s[i][j]);
        meet();
    }
}
static void coarser(int me, int level) {
    long from, to;
    double **v = value[level], **s = source[level], **below = source[level + 1], **rest = value[level + 1];
    share(me, size[level + 1], &from, &to);
    for (long i = from + 1; i <= to; i++)
        for (long j = 1; j <= size[level + 1]; j++) {
            long y = 2 * i, x = 2 * j;
            below[i][j] = 4.0 * (s[y][x] - (v[y - 1][x] + v[y + 1][x] + v[y][x - 1] + v[y][x + 1] - 4.0 * v[y][x]));
            rest[i][j] = 0;
        }
    meet();
}
static void finer(int me, int level) {
    long from, to;
    double **v = value[level], **low = value[level + 1];
    share(me, size[level + 1], &from, &to);
    for (long i = from + 1; i <= to; i++)
        for (long j = 1; j <= size[level + 1]; j++) {
            v[2 * i][2 * j] += low[i][j];
            v[2 * i - 1][2 * j] += 0.5 * (low[i][j] + low[i - 1][j]);
            v[2 * i][2 * j - 1] += 0.5 * (low[i][j] + low[i][j - 1]);
            v[2 * i - 1][2 * j - 1] += 0.25 * (low[i][j] + low[i - 1][j] + low[i][j - 1] + low[i - 1][j - 1]);
        }
    meet();
}
static double error(int me) {
    long from, to, n = size[0];
    double worst = 0, **v = value[0], **s = source[0];
    share(me, n, &from, &to);
    for (long i = from + 1; i <= to; i++)
        for (long j = 1; j <= n; j++)
            worst = fmax(worst, fabs(v[i - 1][j] + v[i + 1][j] + v[i][j - 1] + v[i][j + 1] - 4.0 * v[i][j] - s[i][j]));
    return worst;
}
static void cycle(int me, int level) {
    for (int i = 0; i < 2; i++) relax(me, level);
    if (level + 1 < LEVELS) {
        coarser(me, level);
        cycle(me, level + 1);
        finer(me, level);
    }
    for (int i = 0; i < 2; i++) relax(me, level);
}
static void work(int me) {
    for (long t = 0; t < turns; t++) cycle(me, 0);
    errors[me] = error(me);
}
int main(int argc, char **argv) {
    int threads = (int)argument(argc, argv, 1, 2);
    long n = argument(argc, argv, 2, 31);
    turns = argument(argc, argv, 3, 2);
    for (int level = 0; level < LEVELS; level++, n /= 2) {
        size[level] = n;
        value[level] = grid(n);
        source[level] = grid(n);
    }
    errors = calloc(threads, sizeof *errors);
    double before = 0, after = 0;
    for (long i = 1; i <= size[0]; i++)
        for (long j = 1; j <= size[0]; j++) {
            source[0][i][j] = (double)((i * 31 + j * 17) % 23) - 11.0;
            before = fmax(before, fabs(source[0][i][j]));
        }
    team_run(threads, work);
    for (int i = 0; i < threads; i++) after = fmax(after, errors[i]);
    printf("ocean of %ld by %ld, %ld turns: %s\n", size[0], size[0], turns, after < before ? "calmer" : "wrong");
    return after < before ? 0 : 1;
}
