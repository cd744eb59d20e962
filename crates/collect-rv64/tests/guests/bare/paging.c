/* Page tables of three and four levels: pages of every size, rights, accessed and
 * dirty bits, address-space ids, fences. Each check runs often enough to be
 * generated code in the end. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bare.h"

enum { V = 1, R = 2, W = 4, X = 8, U = 16, G = 32, A = 64, D = 128 };
enum { LEAF = V | R | W | X | A | D };
#define SUM (1UL << 18)
#define MXR (1UL << 19)
#define RAM 0x80000000UL
#define PAGE 4096UL
#define GIGA (1UL << 30)

typedef u64 table[512] __attribute__((aligned(4096)));
static table top[2], root[2], middle, low;
static volatile u64 data[3][512] __attribute__((aligned(4096)));
static u32 code[2][1024] __attribute__((aligned(4096)));

static u64 entry(const volatile void *to, u64 bits)
{
    return (u64)to >> 12 << 10 | bits;
}

static void fence(void)
{
    asm volatile("sfence.vma" : : : "memory");
}

/* Turns translation on for lower modes. */
static void use(int levels, int set, u64 asid)
{
    u64 mode = levels == 3 ? 8 : 9;
    u64 page = (u64)(levels == 3 ? root[set] : top[set]) >> 12;
    WRITE_CSR(satp, mode << 60 | asid << 44 | page);
}

static u64 load(u64 mode, u64 va)
{
    return in_mode(mode, do_load, va, 0);
}

static u64 store(u64 mode, u64 va, u64 value)
{
    return in_mode(mode, do_store, va, value);
}

/* Where the tables put things: this program as it is for supervisor mode and
 * 2 GiB up for user mode; 4 KiB pages from 1 GiB on, 2 MiB pages behind them. */
#define SMALL (1 * GIGA)
#define LARGE (1 * GIGA + (2UL << 20))
#define USER_OFFSET (2 * GIGA)

static void make_tables(void)
{
    for (int set = 0; set < 2; set++) {
        root[set][2] = entry((void *)RAM, LEAF);
        root[set][4] = entry((void *)RAM, LEAF | U);
        root[set][1] = entry(middle, V);
        top[set][0] = entry(root[set], V);
    }
    middle[0] = entry(low, V);
    middle[1] = entry((void *)RAM, LEAF);
}

static long sizes(int levels)
{
    low[0] = entry(data[0], LEAF);
    low[1] = entry(data[1], LEAF);
    fence();
    /* 4 KiB, and an access over the border of two pages that are not neighbours. */
    CHECK(store(SUPERVISOR, SMALL + 8, 11) == CALL_SUPERVISOR && data[0][1] == 11);
    CHECK(store(SUPERVISOR, SMALL + PAGE, 12) == CALL_SUPERVISOR && data[1][0] == 12);
    low[1] = entry(data[2], LEAF);
    fence();
    data[0][511] = 0;
    CHECK(store(SUPERVISOR, SMALL + PAGE - 4, 0x1122334455667788) == CALL_SUPERVISOR);
    CHECK(data[0][511] == 0x5566778800000000 && (u32)data[2][0] == 0x11223344);
    CHECK(load(SUPERVISOR, SMALL + PAGE - 4) == CALL_SUPERVISOR);
    CHECK(trap_a0 == 0x1122334455667788);
    low[1] = 0;
    fence();
    CHECK(load(SUPERVISOR, SMALL + PAGE - 4) == LOAD_PAGE && trap_value == SMALL + PAGE);
    CHECK(store(SUPERVISOR, SMALL + PAGE - 1, 0) == STORE_PAGE && trap_value == SMALL + PAGE);
    /* 2 MiB, 1 GiB. */
    u64 offset = (u64)&data[0][7] - RAM;
    data[0][7] = 77;
    CHECK(load(SUPERVISOR, LARGE + offset) == CALL_SUPERVISOR && trap_a0 == 77);
    CHECK(load(SUPERVISOR, 2 * GIGA + offset) == CALL_SUPERVISOR && trap_a0 == 77);
    mode_offset = USER_OFFSET;
    CHECK(load(USER, 4 * GIGA + offset) == CALL_USER && trap_a0 == 77);
    mode_offset = 0;
    if (levels == 4) {
        /* 512 GiB: all of physical memory up to there. */
        top[0][1] = entry(0, LEAF);
        fence();
        CHECK(load(SUPERVISOR, (1UL << 39) + RAM + offset) == CALL_SUPERVISOR && trap_a0 == 77);
        top[0][1] = entry((void *)GIGA, LEAF);
        fence();
        CHECK(load(SUPERVISOR, (1UL << 39) + RAM + offset) == LOAD_PAGE);
        top[0][1] = 0;
        /* The upper half. */
        top[0][511] = entry(root[0], V);
        fence();
        u64 high = -(1UL << 39) + 2 * GIGA + offset;
        CHECK(load(SUPERVISOR, high) == CALL_SUPERVISOR && trap_a0 == 77);
        CHECK(load(SUPERVISOR, high & ~(1UL << 63)) == LOAD_PAGE);
    } else {
        CHECK(load(SUPERVISOR, (1UL << 39) + 2 * GIGA + offset) == LOAD_PAGE);
        root[0][511] = root[0][2];
        fence();
        CHECK(load(SUPERVISOR, -GIGA + offset) == CALL_SUPERVISOR && trap_a0 == 77);
        CHECK(load(SUPERVISOR, (-GIGA + offset) & ~(1UL << 63)) == LOAD_PAGE);
    }
    /* Large pages must be aligned. */
    middle[1] = entry((void *)(RAM + PAGE), LEAF);
    fence();
    CHECK(load(SUPERVISOR, LARGE + offset) == LOAD_PAGE && trap_value == LARGE + offset);
    middle[1] = entry((void *)RAM, LEAF);
    fence();
    return 0;
}

static u64 with(u64 bits, u64 mode, u64 is_store)
{
    low[2] = entry(data[0], bits);
    fence();
    mode_offset = mode == USER ? USER_OFFSET : 0;
    u64 cause = is_store ? store(mode, SMALL + 2 * PAGE, 5) : load(mode, SMALL + 2 * PAGE);
    mode_offset = 0;
    return cause;
}

static long rights(void)
{
    u64 s = CALL_SUPERVISOR, u = CALL_USER;
    CHECK(with(V | R | A, SUPERVISOR, 0) == s && with(V | R | A | D, SUPERVISOR, 1) == STORE_PAGE);
    CHECK(with(LEAF, USER, 0) == LOAD_PAGE && with(LEAF, USER, 1) == STORE_PAGE);
    CHECK(with(LEAF | U, USER, 0) == u && with(LEAF | U, USER, 1) == u);
    CHECK(with(LEAF | U, SUPERVISOR, 0) == LOAD_PAGE && with(LEAF | U, SUPERVISOR, 1) == STORE_PAGE);
    SET_CSR(mstatus, SUM);
    CHECK(with(LEAF | U, SUPERVISOR, 0) == s && with(LEAF | U, SUPERVISOR, 1) == s);
    CLEAR_CSR(mstatus, SUM);
    CHECK(with(LEAF | U, SUPERVISOR, 0) == LOAD_PAGE);
    CHECK(with(V | X | A, SUPERVISOR, 0) == LOAD_PAGE);
    SET_CSR(mstatus, MXR);
    CHECK(with(V | X | A, SUPERVISOR, 0) == s && with(V | X | A | D, SUPERVISOR, 1) == STORE_PAGE);
    CLEAR_CSR(mstatus, MXR);
    CHECK(with(V | X | A, SUPERVISOR, 0) == LOAD_PAGE);
    /* Accessed and dirty are software's to set. */
    CHECK(with(LEAF & ~A, SUPERVISOR, 0) == LOAD_PAGE && with(LEAF & ~A, SUPERVISOR, 1) == STORE_PAGE);
    CHECK(with(LEAF & ~D, SUPERVISOR, 0) == s && with(LEAF & ~D, SUPERVISOR, 1) == STORE_PAGE);
    CHECK((low[2] & (A | D)) == A);
    /* Reserved: writable but not readable, high bits, not valid. */
    CHECK(with(V | W | A | D, SUPERVISOR, 0) == LOAD_PAGE);
    CHECK(with(V | W | X | A | D, SUPERVISOR, 1) == STORE_PAGE);
    CHECK(with(LEAF | 1UL << 63, SUPERVISOR, 0) == LOAD_PAGE);
    CHECK(with(LEAF | 1UL << 54, SUPERVISOR, 0) == LOAD_PAGE);
    CHECK(with(LEAF & ~V, SUPERVISOR, 0) == LOAD_PAGE);
    /* A pointer has no leaf's bits, and the last level has no pointers. */
    CHECK(with(V, SUPERVISOR, 0) == LOAD_PAGE);
    middle[0] = entry(low, V | A);
    CHECK(with(LEAF, SUPERVISOR, 0) == LOAD_PAGE);
    middle[0] = entry(low, V);
    CHECK(with(LEAF, SUPERVISOR, 0) == s);
    /* Tables that are not memory. */
    middle[2] = entry((void *)(RAM + (4UL << 30)), V);
    fence();
    CHECK(load(SUPERVISOR, SMALL + (4UL << 20)) == LOAD_ACCESS);
    return 0;
}

/* Code in pages: rights to fetch, and an instruction that lies in two. */
static long fetches(void)
{
    const u32 ret = 0x00008067, addi = 0x02a00513; /* li a0, 42 */
    code[0][0] = addi;
    code[0][1] = ret;
    *(u16 *)((u8 *)code[0] + 4094) = (u16)addi;
    *(u16 *)code[1] = addi >> 16;
    *(u32 *)((u8 *)code[1] + 2) = ret;
    asm volatile("fence.i" : : : "memory");
    u64 at = SMALL + 3 * PAGE;
    low[3] = entry(code[0], V | R | X | A);
    low[4] = entry(code[1], V | R | X | A);
    fence();
    CHECK(in_mode(SUPERVISOR, (void *)at, 0, 0) == CALL_SUPERVISOR && trap_a0 == 42);
    CHECK(in_mode(SUPERVISOR, (void *)(at + 4094), 0, 0) == CALL_SUPERVISOR && trap_a0 == 42);
    low[4] = entry(code[1], V | R | A);
    fence();
    CHECK(in_mode(SUPERVISOR, (void *)(at + 4094), 0, 0) == FETCH_PAGE);
    CHECK(trap_pc == at + 4094 && trap_value == at + PAGE);
    low[3] = entry(code[0], V | R | X | A | U);
    fence();
    CHECK(in_mode(SUPERVISOR, (void *)at, 0, 0) == FETCH_PAGE && trap_value == at);
    SET_CSR(mstatus, SUM);
    CHECK(in_mode(SUPERVISOR, (void *)at, 0, 0) == FETCH_PAGE);
    CLEAR_CSR(mstatus, SUM);
    mode_offset = USER_OFFSET;
    CHECK(in_mode(USER, (void *)(at - USER_OFFSET), 0, 0) == CALL_USER && trap_a0 == 42);
    low[3] = entry(code[0], V | R | X | A);
    fence();
    CHECK(in_mode(USER, (void *)(at - USER_OFFSET), 0, 0) == FETCH_PAGE);
    mode_offset = 0;
    /* New code behind old translations. */
    low[3] = entry(code[1], V | R | X | A);
    code[1][0] = 0x00700513; /* li a0, 7 */
    code[1][1] = ret;
    asm volatile("fence.i" : : : "memory");
    fence();
    CHECK(in_mode(SUPERVISOR, (void *)at, 0, 0) == CALL_SUPERVISOR && trap_a0 == 7);
    return 0;
}

/* Two spaces that differ in one page, told apart by id and by table. */
static long spaces(int levels)
{
    static table other_middle, other_low;
    root[1][1] = entry(other_middle, V);
    other_middle[0] = entry(other_low, V);
    other_low[5] = entry(data[1], LEAF);
    low[5] = entry(data[0], LEAF);
    fence();
    data[0][0] = 100;
    data[1][0] = 200;
    for (int turn = 0; turn < 20; turn++) {
        use(levels, turn & 1, 1 + (turn & 1));
        CHECK(load(SUPERVISOR, SMALL + 5 * PAGE) == CALL_SUPERVISOR);
        CHECK(trap_a0 == (turn & 1 ? 200 : 100));
    }
    /* A fence for one address, and one for another space, do what they say. */
    use(levels, 0, 1);
    low[5] = entry(data[1], LEAF);
    asm volatile("sfence.vma %0, %1" : : "r"(SMALL + 5 * PAGE), "r"(1UL) : "memory");
    CHECK(load(SUPERVISOR, SMALL + 5 * PAGE) == CALL_SUPERVISOR && trap_a0 == 200);
    low[5] = 0;
    asm volatile("sfence.vma %0, x0" : : "r"(SMALL + 5 * PAGE) : "memory");
    CHECK(load(SUPERVISOR, SMALL + 5 * PAGE) == LOAD_PAGE);
    /* Modes that are not there are not taken. */
    u64 before = READ_CSR(satp);
    WRITE_CSR(satp, 10UL << 60 | before >> 4 << 4);
    CHECK(READ_CSR(satp) == before);
    CHECK((before >> 44 & 0xffff) == 1);
    WRITE_CSR(satp, before | 0xffffUL << 44);
    CHECK((READ_CSR(satp) >> 44 & 0xffff) == 0xffff);
    WRITE_CSR(satp, before);
    return 0;
}

long run(long hart)
{
    (void)hart;
    open_memory();
    make_tables();
    for (int levels = 3; levels <= 4; levels++) {
        for (int round = 0; round < 6; round++) {
            long wrong;
            use(levels, 0, 1);
            fence();
            if ((wrong = sizes(levels)) || (wrong = rights()) || (wrong = fetches()))
                return wrong;
            if ((wrong = spaces(levels)))
                return wrong;
        }
    }
    /* Translation off again. */
    WRITE_CSR(satp, 0);
    data[0][0] = 3;
    CHECK(load(SUPERVISOR, (u64)&data[0][0]) == CALL_SUPERVISOR && trap_a0 == 3);
    return 0;
}
