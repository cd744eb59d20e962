/* What bare programs share: other modes, control registers, checks. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BARE_H
#define BARE_H

typedef unsigned long u64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

enum { USER = 0, SUPERVISOR = 1, MACHINE = 3 };

/* Causes. */
enum {
    FETCH_ACCESS = 1, ILLEGAL = 2, LOAD_ACCESS = 5, STORE_ACCESS = 7, CALL_USER = 8,
    CALL_SUPERVISOR = 9, FETCH_PAGE = 12, LOAD_PAGE = 13, STORE_PAGE = 15
};

extern volatile u64 tohost, trap_a0, trap_value, trap_pc, mode_offset;
u64 in_mode(u64 mode, void *code, u64 a, u64 b);
void do_load(void), do_store(void), do_jump(void);

#define READ_CSR(name) ({ u64 value_; asm volatile("csrr %0, " #name : "=r"(value_)); value_; })
#define WRITE_CSR(name, value) asm volatile("csrw " #name ", %0" : : "r"((u64)(value)) : "memory")
#define SET_CSR(name, bits) asm volatile("csrs " #name ", %0" : : "r"((u64)(bits)) : "memory")
#define CLEAR_CSR(name, bits) asm volatile("csrc " #name ", %0" : : "r"((u64)(bits)) : "memory")

/* The verdict of a failed check is its line. */
#define CHECK(what) do { if (!(what)) return __LINE__; } while (0)

/* Everything is allowed everywhere by physical memory protection. */
static inline void open_memory(void)
{
    WRITE_CSR(pmpaddr0, -1UL);
    WRITE_CSR(pmpcfg0, 0x1f);
}

#endif
