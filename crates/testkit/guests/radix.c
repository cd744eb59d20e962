// Radix sort of integers by threads: radix THREADS KEYS TURNS
#include "team.h"
#define DIGIT 8
#define VALUES (1 << DIGIT)
static unsigned *keys, *other;
static long n, turns;
static long (*counts)[VALUES];
static void sort(int me) {
    long from, to;
    share(me, n, &from, &to);
    unsigned *in = keys, *out = other;
    for (int shift = 0; shift < 32; shift += DIGIT) {
        long *own = counts[me];
        for (int v = 0; v < VALUES; v++) own[v] = 0;
        for (long i = from; i < to; i++) own[in[i] >> shift & (VALUES - 1)]++;
        meet();
        long place[VALUES], sum = 0;
        for (int v = 0; v < VALUES; v++)
            for (int t = 0; t < team_size; t++) {
                if (t == me) place[v] = sum;
                sum += counts[t][v];
            }
        for (long i = from; i < to; i++) out[place[in[i] >> shift & (VALUES - 1)]++] = in[i];
        meet();
        unsigned *swap = in;
        in = out;
        out = swap;
    }
}
static void work(int me) {
    for (long t = 0; t < turns; t++) {
        long from, to;
        share(me, n, &from, &to);
        unsigned long state = (unsigned long)(t * 1000 + 17);
        for (long i = from; i < to; i++) {
            unsigned long own = state + (unsigned long)i * 2654435761ul;
            next_random(&own);
            keys[i] = next_random(&own) * 2u;
        }
        meet();
        sort(me);
    }
}
int main(int argc, char **argv) {
    int threads = (int)argument(argc, argv, 1, 2);
    n = argument(argc, argv, 2, 1000);
    turns = argument(argc, argv, 3, 1);
    keys = malloc(n * sizeof *keys);
    other = malloc(n * sizeof *other);
    counts = malloc(threads * sizeof *counts);
    team_run(threads, work);
    int sorted = 1;
    unsigned sum = 0;
    for (long i = 0; i < n; i++) {
        sorted &= i == 0 || keys[i - 1] <= keys[i];
        sum = sum * 31 + keys[i];
    }
    printf("radix of %ld keys, %ld times: %s, %u\n", n, turns, sorted ? "sorted" : "wrong", sum);
    return sorted ? 0 : 1;
}
