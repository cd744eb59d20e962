/* Counts what a program does, in the program itself.
 *
 *   cc -O2 -mgeneral-regs-only -shared -fPIC -I crates/plugin/include -o libcounting.so crates/plugin/examples/counting.c
 *   ichnos cc --tool ./libcounting.so -- gcc -O2 prog.c -o prog
 *   ichnos record -o none -- ./prog
 *
 * At the end it writes blocks, instructions, loads, bytes loaded, stores, bytes stored and varying instructions to the
 * file that ICHNOS_COUNTS names, or to standard error.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "ichnos_tool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Without it all vector registers would be saved around each call. */
const char ichnos_tool_general_registers_only = 1;

static atomic_uint_fast64_t blocks, insns, loads, loaded, stores, stored, varying;

static void add(atomic_uint_fast64_t *sum, uint64_t count) {
    atomic_fetch_add_explicit(sum, count, memory_order_relaxed);
}

void ichnos_tool_block(uint64_t pc, uint64_t count) {
    (void)pc;
    add(&blocks, 1);
    add(&insns, count);
}

void ichnos_tool_load(uint64_t addr, uint64_t size) {
    (void)addr;
    add(&loads, 1);
    add(&loaded, size);
}

void ichnos_tool_store(uint64_t addr, uint64_t size) {
    (void)addr;
    add(&stores, 1);
    add(&stored, size);
}

void ichnos_tool_varying(uint64_t pc, uint64_t unused) {
    (void)pc, (void)unused;
    add(&varying, 1);
}

__attribute__((destructor)) static void tell(void) {
    const char *name = getenv("ICHNOS_COUNTS");
    FILE *file = name ? fopen(name, "w") : stderr;
    if (!file)
        return;
    fprintf(file, "%llu %llu %llu %llu %llu %llu %llu\n", (unsigned long long)blocks, (unsigned long long)insns,
            (unsigned long long)loads, (unsigned long long)loaded, (unsigned long long)stores,
            (unsigned long long)stored, (unsigned long long)varying);
    if (name)
        fclose(file);
}
