/* A model of one's own: a data cache with LRU replacement, as a shared library.
 *
 *   cc -O2 -shared -fPIC -I crates/plugin/include -o liblru.so crates/plugin/examples/lru.c
 *   ichnos sim --model ./liblru.so:32768,8,64 -- ls
 *
 * The arguments are bytes, ways and bytes of a line. The tests compile it and
 * compare its counts with the built-in cache's.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "ichnos_model.h"

#include <stdio.h>
#include <stdlib.h>

struct lru {
    uint64_t line, sets, ways;
    uint64_t loads, stores, load_misses, store_misses;
    uint64_t *tags; /* each set's lines, most recent first; 0 is none */
};

static void *create(const char *args, char *error, size_t error_bytes) {
    unsigned long bytes = 32768, ways = 8, line = 64;
    if (*args && sscanf(args, "%lu,%lu,%lu", &bytes, &ways, &line) != 3) {
        snprintf(error, error_bytes, "expected BYTES,WAYS,LINE");
        return NULL;
    }
    if (!ways || !line || bytes % (ways * line) || bytes / (ways * line) == 0) {
        snprintf(error, error_bytes, "%lu bytes are no whole sets of %lu lines", bytes, ways);
        return NULL;
    }
    struct lru *lru = calloc(1, sizeof *lru);
    lru->line = line;
    lru->ways = ways;
    lru->sets = bytes / (ways * line);
    lru->tags = calloc(lru->sets * ways, sizeof *lru->tags);
    return lru;
}

/* Whether the line was absent; it is the most recent one afterwards. */
static int missed(struct lru *lru, uint64_t number) {
    uint64_t *set = lru->tags + number % lru->sets * lru->ways, carried = number + 1;
    for (uint64_t way = 0; way < lru->ways; way++) {
        uint64_t here = set[way];
        set[way] = carried;
        if (here == number + 1)
            return 0;
        carried = here;
    }
    return 1;
}

static int records(void *model, const ichnos_batch *batch) {
    struct lru *lru = model;
    for (size_t i = 0; i < batch->count; i++) {
        const ichnos_record *record = &batch->records[i];
        if (record->kind != ICHNOS_LOAD && record->kind != ICHNOS_STORE)
            continue;
        uint64_t last = (record->addr + (record->size ? record->size - 1 : 0)) / lru->line;
        for (uint64_t line = record->addr / lru->line; line <= last; line++) {
            int miss = missed(lru, line);
            if (record->kind == ICHNOS_LOAD) {
                lru->loads++;
                lru->load_misses += miss;
            } else {
                lru->stores++;
                lru->store_misses += miss;
            }
        }
    }
    return 0;
}

static void reset(void *model) {
    struct lru *lru = model;
    lru->loads = lru->stores = lru->load_misses = lru->store_misses = 0;
}

static void report(void *model, const ichnos_report *report) {
    struct lru *lru = model;
    uint64_t all = lru->loads + lru->stores, misses = lru->load_misses + lru->store_misses;
    report->text(report->context, "replacement", "lru");
    report->count(report->context, "loads", lru->loads);
    report->count(report->context, "load misses", lru->load_misses);
    report->count(report->context, "stores", lru->stores);
    report->count(report->context, "store misses", lru->store_misses);
    report->number(report->context, "miss ratio", all ? (double)misses / (double)all : 0.0);
}

static void destroy(void *model) {
    struct lru *lru = model;
    free(lru->tags);
    free(lru);
}

#ifndef ABI_OF_TEST
#define ABI_OF_TEST ICHNOS_MODEL_ABI
#endif

const ichnos_model *ichnos_model_entry(void) {
    static const ichnos_model table = {.abi = ABI_OF_TEST,
                                       .name = "lru data cache",
                                       .create = create,
                                       .records = records,
                                       .reset = reset,
                                       .report = report,
                                       .destroy = destroy};
    return &table;
}
