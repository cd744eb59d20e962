/* Cache-block instructions: what they do, and who may use them. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bare.h"

enum { INVAL = 0x30, CLEAN = 0x40, ZERO = 0x80 };

static volatile u8 area[256] __attribute__((aligned(64)));

__attribute__((naked)) static void zero(void) { asm("cbo.zero (a0)\n ret"); }
__attribute__((naked)) static void clean(void) { asm("cbo.clean (a0)\n ret"); }
__attribute__((naked)) static void flush(void) { asm("cbo.flush (a0)\n ret"); }
__attribute__((naked)) static void inval(void) { asm("cbo.inval (a0)\n ret"); }

static long works(void)
{
    for (int i = 0; i < 256; i++)
        area[i] = i | 1;
    asm volatile("cbo.zero (%0)" : : "r"(area + 64 + 13) : "memory");
    for (int i = 0; i < 256; i++)
        CHECK(area[i] == (i / 64 == 1 ? 0 : (i | 1) & 255));
    asm volatile("cbo.clean (%0)\n cbo.flush (%0)\n cbo.inval (%0)" : : "r"(area) : "memory");
    CHECK(area[5] == 5);
    return 0;
}

long run(long hart)
{
    (void)hart;
    open_memory();
    for (int round = 0; round < 6; round++) {
        long wrong = works();
        if (wrong)
            return wrong;
        WRITE_CSR(menvcfg, 0);
        WRITE_CSR(senvcfg, 0);
        CHECK(in_mode(SUPERVISOR, zero, (u64)area, 0) == ILLEGAL);
        CHECK(in_mode(SUPERVISOR, clean, (u64)area, 0) == ILLEGAL);
        CHECK(in_mode(SUPERVISOR, inval, (u64)area, 0) == ILLEGAL);
        WRITE_CSR(menvcfg, ZERO);
        CHECK(in_mode(SUPERVISOR, zero, (u64)area, 0) == CALL_SUPERVISOR && area[1] == 0);
        CHECK(in_mode(USER, zero, (u64)area, 0) == ILLEGAL);
        CHECK(in_mode(SUPERVISOR, flush, (u64)area, 0) == ILLEGAL);
        WRITE_CSR(menvcfg, ZERO | CLEAN | INVAL);
        WRITE_CSR(senvcfg, CLEAN);
        CHECK(in_mode(USER, clean, (u64)area, 0) == CALL_USER);
        CHECK(in_mode(USER, flush, (u64)area, 0) == CALL_USER);
        CHECK(in_mode(USER, inval, (u64)area, 0) == ILLEGAL);
        CHECK(in_mode(USER, zero, (u64)area, 0) == ILLEGAL);
        WRITE_CSR(senvcfg, ZERO | INVAL);
        CHECK(in_mode(USER, zero, (u64)area, 0) == CALL_USER);
        CHECK(in_mode(USER, inval, (u64)area, 0) == CALL_USER);
        /* Faults name the store that could not be. */
        CHECK(in_mode(MACHINE, zero, 0x40000000, 0) == STORE_ACCESS);
        CHECK(trap_value == 0x40000000);
    }
    return 0;
}
