/* Functions of yours that recorded code calls, version 1.
 *
 *   cc -O2 -shared -fPIC -I crates/plugin/include -o libmine.so mine.c
 *   ichnos cc --tool ./libmine.so -- gcc -O2 prog.c -o prog
 *   ichnos record --sample 1000:10 -o none -- ./prog
 *
 * A program that was linked with the library calls those of the functions below that the library exports, whenever its
 * code is recorded: all the time, or in samples and windows. They run in the program, in the thread that does
 * what they are told of, before it is done; registers are saved around them. A program that is not recorded calls none.
 *
 * Several threads call at once. A signal is held back until the function has returned. Functions must not call
 * functions of the program itself, nor leave by longjmp or an exception. What they find they tell themselves, at the
 * end of the program say (a destructor).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef ICHNOS_TOOL_H
#define ICHNOS_TOOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A basic block of `insns` instructions begins at `pc`. */
void ichnos_tool_block(uint64_t pc, uint64_t insns);

/* `size` bytes are read at `addr`. */
void ichnos_tool_load(uint64_t addr, uint64_t size);

/* `size` bytes are written at `addr`. */
void ichnos_tool_store(uint64_t addr, uint64_t size);

/* The instruction at `pc` makes accesses of which number or place depend on more than an address: repeated strings,
 * masked vectors, gathers. They are not told one by one. */
void ichnos_tool_varying(uint64_t pc, uint64_t unused);

/* A library that defines this (as anything) promises that its functions change general registers alone: built with
 * -mgeneral-regs-only, and calling nothing that was not. Vector registers are not saved then, which is much cheaper. */
extern const char ichnos_tool_general_registers_only;

#ifdef __cplusplus
}
#endif

#endif
