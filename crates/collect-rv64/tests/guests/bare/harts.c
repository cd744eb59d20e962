/* Up to sixteen harts that count under a lock, by atomic additions, and pass a
 * software interrupt round; then a timer ends the wait of each. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bare.h"

#define HARTS (*(volatile u32 *)&harts)
#define SOFTWARE(hart) ((volatile u32 *)0x2000000)[hart]
#define COMPARE(hart) ((volatile u64 *)0x2004000)[hart]
#define TIME (*(volatile u64 *)0x200bff8)

static volatile u32 harts, lock, here;
static volatile u64 counted, added, passed, late;

static void locked_count(void)
{
    u32 busy;
    do
        asm volatile("1: lr.w.aq %0, (%1)\n bnez %0, 2f\n sc.w.rl %0, %2, (%1)\n2:"
                     : "=&r"(busy) : "r"(&lock), "r"(1) : "memory");
    while (busy);
    counted = counted + 1;
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
}

/* Waits for an interrupt that is enabled but not taken. */
static void await(u64 which)
{
    WRITE_CSR(mie, which);
    while (!(READ_CSR(mip) & which))
        asm volatile("wfi");
    WRITE_CSR(mie, 0);
}

long run(long hart)
{
    __atomic_add_fetch(&here, 1, __ATOMIC_SEQ_CST);
    /* Harts that are there come in their first turns. */
    if (hart == 0) {
        for (volatile int wait = 0; wait < 20000; wait++)
            ;
        harts = here;
    }
    while (!HARTS)
        ;
    for (int n = 0; n < 500; n++) {
        locked_count();
        __atomic_add_fetch(&added, hart + 1, __ATOMIC_RELAXED);
    }
    /* The interrupt goes round three times. */
    for (int turn = 0; turn < 3; turn++) {
        if (hart == 0 && turn == 0)
            SOFTWARE(0) = 1;
        await(8);
        SOFTWARE(hart) = 0;
        passed++;
        SOFTWARE((hart + 1) % harts) = 1;
    }
    u64 until = TIME + 100 * (hart + 1);
    COMPARE(hart) = until;
    await(128);
    if (TIME < until)
        late = 1;
    COMPARE(hart) = -1UL;
    __atomic_sub_fetch(&here, 1, __ATOMIC_SEQ_CST);
    if (hart != 0)
        return 0;
    while (here)
        ;
    CHECK(counted == 500UL * harts);
    CHECK(added == 500UL * harts * (harts + 1) / 2);
    CHECK(passed == 3UL * harts);
    CHECK(!late);
    return 0;
}
