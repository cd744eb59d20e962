/* Physical memory protection: every way to name a range, its order, its locks. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bare.h"

enum { R = 1, W = 2, X = 4, TOR = 8, NA4 = 16, NAPOT = 24, LOCK = 128 };

static volatile u64 area[2048] __attribute__((aligned(8192)));

static u64 load(const volatile void *at)
{
    return in_mode(SUPERVISOR, do_load, (u64)at, 0);
}

static u64 store(volatile void *at)
{
    return in_mode(USER, do_store, (u64)at, 1);
}

static long ranges(void)
{
    u64 base = (u64)area >> 2;
    /* The last entry allows everything, so that the first ones are exceptions. */
    WRITE_CSR(pmpaddr3, -1UL);
    /* 4 KiB that may only be read. */
    WRITE_CSR(pmpaddr0, base | 0x1ff);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (NAPOT | R));
    CHECK(load(area) == CALL_SUPERVISOR && store(area) == STORE_ACCESS);
    CHECK(trap_value == (u64)area);
    CHECK(store(area + 512) == CALL_USER && load(area + 511) == CALL_SUPERVISOR);
    CHECK(store(area + 511) == STORE_ACCESS);
    /* Machine mode is not bound by entries that are not locked. */
    area[0] = 5;
    CHECK(area[0] == 5);
    /* The grain is a page: what is smaller becomes one. */
    WRITE_CSR(pmpaddr0, base | 7);
    CHECK(READ_CSR(pmpaddr0) == (base | 0x1ff));
    CHECK(store(area + 8) == STORE_ACCESS && store(area + 512) == CALL_USER);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (NA4 | R));
    CHECK((READ_CSR(pmpcfg0) & 0xff) == (NAPOT | R));
    CHECK(store(area + 511) == STORE_ACCESS && store(area + 512) == CALL_USER);
    /* A range between two addresses. */
    WRITE_CSR(pmpaddr0, (u64)(area + 512) >> 2);
    WRITE_CSR(pmpaddr1, (u64)(area + 1536) >> 2);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (u64)(TOR | W | R) << 8);
    CHECK(READ_CSR(pmpaddr0) == (u64)(area + 512) >> 2);
    CHECK(store(area + 511) == CALL_USER && store(area + 512) == CALL_USER);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (u64)TOR << 8);
    CHECK(store(area + 511) == CALL_USER && load(area + 512) == LOAD_ACCESS);
    CHECK(load(area + 1535) == LOAD_ACCESS && load(area + 1536) == CALL_SUPERVISOR);
    /* An access that is only half inside. */
    CHECK(in_mode(SUPERVISOR, do_load, (u64)(area + 512) - 4, 0) == LOAD_ACCESS);
    /* The first entry that matches decides. */
    WRITE_CSR(pmpaddr0, base | 0x1ff);
    WRITE_CSR(pmpaddr1, base | 0x1ff);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (NAPOT | R) << 8 | (NAPOT | R | W));
    CHECK(store(area) == CALL_USER);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (NAPOT | R | W) << 8 | (NAPOT | R));
    CHECK(store(area) == STORE_ACCESS);
    /* Code. */
    area[100] = 0x0000806700000013;
    asm volatile("fence.i" : : : "memory");
    CHECK(in_mode(SUPERVISOR, (void *)(area + 100), 0, 0) == FETCH_ACCESS);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (NAPOT | R | X));
    CHECK(in_mode(SUPERVISOR, (void *)(area + 100), 0, 0) == CALL_SUPERVISOR);
    /* No entry matches: nothing for lower modes. */
    WRITE_CSR(pmpcfg0, NAPOT | R | W | X);
    CHECK(in_mode(USER, do_load, (u64)area, 0) == FETCH_ACCESS);
    /* Machine mode's accesses as another mode. */
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (NAPOT | R));
    return 0;
}

/* Page tables are read under protection too. */
static long tables(void)
{
    static u64 root[512] __attribute__((aligned(4096)));
    root[2] = 0x80000000UL >> 12 << 10 | 0xcf;
    WRITE_CSR(satp, 8UL << 60 | (u64)root >> 12);
    WRITE_CSR(pmpaddr0, (u64)root >> 2 | 0x1ff);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | (NAPOT | R));
    asm volatile("sfence.vma" : : : "memory");
    CHECK(load(area) == CALL_SUPERVISOR);
    WRITE_CSR(pmpcfg0, (u64)(NAPOT | R | W | X) << 24 | NAPOT);
    asm volatile("sfence.vma" : : : "memory");
    CHECK(load(area) == FETCH_ACCESS);
    WRITE_CSR(satp, 0);
    return 0;
}

/* Locks bind machine mode, and hold until a reset: they come last. */
static long locks(void)
{
    u64 base = (u64)area >> 2;
    WRITE_CSR(pmpaddr1, base | 0x1ff);
    WRITE_CSR(pmpaddr2, -1UL);
    WRITE_CSR(pmpcfg0, (NAPOT | R | W | X) << 16 | (u64)(NAPOT | R | LOCK) << 8);
    WRITE_CSR(pmpcfg0, (NAPOT | R | W | X) << 16);
    CHECK((READ_CSR(pmpcfg0) >> 8 & 0xff) == (NAPOT | R | LOCK));
    WRITE_CSR(pmpaddr1, 0);
    CHECK(READ_CSR(pmpaddr1) == (base | 0x1ff));
    CHECK(in_mode(MACHINE, do_store, (u64)area, 1) == STORE_ACCESS);
    CHECK(in_mode(MACHINE, do_load, (u64)area, 1) == 11);
    /* Writable but not readable is reserved and not taken. */
    WRITE_CSR(pmpcfg0, (NAPOT | W) << 16);
    CHECK((READ_CSR(pmpcfg0) >> 16 & 3) != W);
    return 0;
}

long run(long hart)
{
    long wrong;
    (void)hart;
    for (int round = 0; round < 6; round++)
        if ((wrong = ranges()) || (wrong = tables()))
            return wrong;
    return locks();
}
