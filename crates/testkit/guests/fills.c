/* Threads that fill memory by string instructions and jump by tables, and meet now and then.
 *
 *   fills THREADS TURNS
 *
 * Every thread executes the same instructions of this file.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "team.h"

static long turns;
static unsigned long *sums;

static void work(int me)
{
    unsigned long room[8] = {0}, sum = 0;
    /* On the stack, where a thread that has lost its place in it reads something else. */
    volatile unsigned long kept = 0x5151515151515151ul;
    for (long turn = 0; turn < turns; turn++) {
        unsigned long *to = room + turn % 4;
        unsigned long count = 1 + turn % 3;
        __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(turn) : "memory");
        switch (turn % 7) {
        case 0: sum += room[1]; break;
        case 1: sum ^= room[2] << 3; break;
        case 2: sum += kept; break;
        case 3: sum -= room[3]; break;
        case 4: sum = sum << 1 | sum >> 63; break;
        case 5: sum ^= kept; break;
        default: sum += room[4] * 3; break;
        }
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
