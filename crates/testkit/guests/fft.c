// A complex Fourier transform by threads, there and back: fft THREADS LOG2-POINTS TURNS
#include "team.h"
#include <math.h>
typedef struct { double re, im; } complex_t;
static complex_t *points, *roots;
static long n;
static int bits;
static long turns;
static void reorder(int me) {
    long from, to;
    share(me, n, &from, &to);
    for (long i = from; i < to; i++) {
        long j = 0;
        for (int b = 0; b < bits; b++) j |= (i >> b & 1) << (bits - 1 - b);
        if (i < j) {
            complex_t t = points[i];
            points[i] = points[j];
            points[j] = t;
        }
    }
    meet();
}
static void transform(int me, int back) {
    long from, to;
    reorder(me);
    for (int level = 0; level < bits; level++) {
        long half = 1l << level, stride = n >> (level + 1);
        share(me, n / 2, &from, &to);
        for (long i = from; i < to; i++) {
            long k = i & (half - 1), low = (i - k) * 2 + k, high = low + half;
            complex_t w = roots[k * stride], x = points[high];
            if (back) w.im = -w.im;
            complex_t t = {x.re * w.re - x.im * w.im, x.re * w.im + x.im * w.re};
            points[high].re = points[low].re - t.re;
            points[high].im = points[low].im - t.im;
            points[low].re += t.re;
            points[low].im += t.im;
        }
        meet();
    }
    if (back) {
        share(me, n, &from, &to);
        for (long i = from; i < to; i++) {
            points[i].re /= n;
            points[i].im /= n;
        }
        meet();
    }
}
static void work(int me) {
    for (long i = 0; i < turns; i++) {
        transform(me, 0);
        transform(me, 1);
    }
}
int main(int argc, char **argv) {
    bits = (int)argument(argc, argv, 2, 8);
    turns = argument(argc, argv, 3, 1);
    n = 1l << bits;
    points = malloc(n * sizeof *points);
    roots = malloc(n / 2 * sizeof *roots);
    unsigned long state = 1;
    for (long i = 0; i < n; i++) points[i] = (complex_t){next_random(&state) % 1000, next_random(&state) % 1000};
    for (long i = 0; i < n / 2; i++) roots[i] = (complex_t){cos(2 * M_PI * i / n), -sin(2 * M_PI * i / n)};
    team_run((int)argument(argc, argv, 1, 2), work);
    double worst = 0;
    state = 1;
    for (long i = 0; i < n; i++) {
        double re = next_random(&state) % 1000, im = next_random(&state) % 1000;
        worst = fmax(worst, fmax(fabs(points[i].re - re), fabs(points[i].im - im)));
    }
    printf("fft of %ld points, %ld times: %s\n", n, turns, worst < 1e-6 * turns ? "as before" : "wrong");
    return worst < 1e-6 * turns ? 0 : 1;
}
