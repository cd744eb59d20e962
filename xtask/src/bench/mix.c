/* Matrix product, list walk and sort, in turns: what caches like, what they do not, and what branches do not.
   SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#define N 96
static double a[N][N], b[N][N], c[N][N];
struct node { struct node *next; long value; };

static int order(const void *x, const void *y)
{
    long p = *(const long *)x, q = *(const long *)y;
    return (p > q) - (p < q);
}

int main(int argc, char **argv)
{
    int turns = argc > 1 ? atoi(argv[1]) : 1;
    long count = 50000, sum = 0, *keys = malloc(count * sizeof *keys);
    struct node *nodes = malloc(count * sizeof *nodes);
    unsigned long seed = 1;
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                a[i][j] = i + j, b[i][j] = i - j, c[i][j] = 0;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                for (int k = 0; k < N; k++)
                    c[i][j] += a[i][k] * b[k][j];
        for (long i = 0; i < count; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            keys[i] = (long)(seed >> 33);
            nodes[i].value = i;
            nodes[i].next = &nodes[(i * 7919 + 1) % count];
        }
        struct node *at = nodes;
        for (long i = 0; i < 4 * count; i++, at = at->next)
            sum += at->value;
        qsort(keys, count, sizeof *keys, order);
        sum += keys[count / 2] + (long)c[3][5];
    }
    printf("%ld\n", sum);
    return 0;
}
