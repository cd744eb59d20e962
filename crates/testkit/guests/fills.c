/* Threads that fill memory by string instructions and jump by tables, and meet now and then.
 *
 *   fills THREADS TURNS
 *
 * Every thread executes the same instructions of this file.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "fill.h"
#include "team.h"

static long turns;
static unsigned long *sums;

static void work(int me)
{
    unsigned long room[8] = {0}, sum = 0;
    /* On the stack, where a thread that has lost its place in it reads something else. */
    volatile unsigned long kept = KEPT;
    for (long turn = 0; turn < turns; turn++) {
        sum = fill(room, turn, sum, &kept);
        if (turn % 20000 == 0)
            meet();
    }
    sums[me] = sum;
}

int main(int argc, char **argv)
{
    int threads = (int)argument(argc, argv, 1, 2);
    turns = argument(argc, argv, 2, 1000);
    sums = calloc(threads, sizeof *sums);
    team_run(threads, work);
    int same = 1;
    for (int i = 1; i < threads; i++)
        same &= sums[i] == sums[0];
    printf("%d threads, %ld turns: %s, %lx\n", threads, turns, same ? "same" : "different", sums[0]);
    return same ? 0 : 1;
}
