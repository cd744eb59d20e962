/* Two harts that count; what a debugger is shown. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
volatile long counters[16];
volatile long watched = 1;
volatile double ratio = 1.5;

__attribute__((noinline)) long square(long n)
{
    return n * n;
}

__attribute__((noinline)) void change(long to)
{
    watched = to;
}

long run(long hart)
{
    long sum = 0;
    for (long n = 1; n <= 2000; n++) {
        sum += square(n);
        counters[hart] = n;
    }
    if (hart != 0)
        return 0;
    change(7);
    ratio *= 2;
    while (counters[1] < 2000)
        ;
    return sum != 2668667000;
}
