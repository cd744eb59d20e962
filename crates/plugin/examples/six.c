/* Six data caches of 32 KB in one pass, after the example of the calvin paper: direct mapped to four ways, with
 * different placement and replacement.
 *
 *   cc -O2 -shared -fPIC -I crates/plugin/include -o libsix.so crates/plugin/examples/six.c
 *   ichnos record --tool ./libsix.so --sample 1000:10 -- ./prog
 *   ichnos sim --model ./libsix.so prog.ichnos
 *
 * The first count is that of references to lines of 64 bytes; the others are misses. The tests compare those with
 * modulo placement and LRU with another cache.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "ichnos_model.h"

#include <stdlib.h>

enum { LINE_BITS = 6, BITS = 15 - LINE_BITS, LINES = 1 << BITS, CACHES = 6, MOST_WAYS = 4 };

enum placement { MODULO, XORED, SKEWED };
enum replacement { LRU, RANDOM };

static const struct shape {
    const char *name;
    unsigned ways, bits; /* 2 to the power of bits sets */
    enum placement placement;
    enum replacement replacement;
} shapes[CACHES] = {
    {"1 way, modulo", 1, BITS, MODULO, LRU},
    {"1 way, xor", 1, BITS, XORED, LRU},
    {"2 ways, modulo, LRU", 2, BITS - 1, MODULO, LRU},
    {"2 ways, skewed, LRU", 2, BITS - 1, SKEWED, LRU},
    {"4 ways, modulo, LRU", 4, BITS - 2, MODULO, LRU},
    {"4 ways, xor, random", 4, BITS - 2, XORED, RANDOM},
};

struct cache {
    uint64_t lines[MOST_WAYS][LINES]; /* by way and set; a line's number and one, 0 is none */
    uint64_t times[MOST_WAYS][LINES]; /* of their last use */
    uint64_t misses;
};

struct six {
    struct cache caches[CACHES];
    uint64_t references, clock, random;
    uint64_t latest; /* the line touched last, and one */
};

static void *create(const char *args, char *error, size_t error_bytes) {
    (void)args, (void)error, (void)error_bytes;
    struct six *six = calloc(1, sizeof *six);
    if (six)
        six->random = 1;
    return six;
}

/* Where a line can be in a way. */
static uint64_t place(const struct shape *shape, unsigned way, uint64_t line) {
    uint64_t last = (1u << shape->bits) - 1, tag = line >> shape->bits;
    switch (shape->placement) {
    case XORED:
        return (line ^ tag) & last;
    case SKEWED: /* each way mixes the tag in by another function */
        return (line ^ (way ? tag * 3 + (tag >> 3) : tag)) & last;
    default:
        return line & last;
    }
}

static void touch(struct six *six, unsigned which, uint64_t line) {
    const struct shape *shape = &shapes[which];
    struct cache *cache = &six->caches[which];
    unsigned victim = 0;
    uint64_t oldest = UINT64_MAX;
    for (unsigned way = 0; way < shape->ways; way++) {
        uint64_t set = place(shape, way, line);
        if (cache->lines[way][set] == line + 1) {
            cache->times[way][set] = six->clock;
            return;
        }
        if (cache->times[way][set] < oldest) {
            oldest = cache->times[way][set];
            victim = way;
        }
    }
    /* A way that is free comes first, also at random. */
    if (shape->replacement == RANDOM && oldest) {
        six->random = six->random * 6364136223846793005u + 1442695040888963407u;
        victim = (unsigned)(six->random >> 33) % shape->ways;
    }
    uint64_t set = place(shape, victim, line);
    cache->lines[victim][set] = line + 1;
    cache->times[victim][set] = six->clock;
    cache->misses++;
}

static int records(void *model, const ichnos_batch *batch) {
    struct six *six = model;
    for (size_t i = 0; i < batch->count; i++) {
        const ichnos_record *record = &batch->records[i];
        if (record->kind != ICHNOS_LOAD && record->kind != ICHNOS_STORE)
            continue;
        uint64_t last = (record->addr + (record->size ? record->size - 1 : 0)) >> LINE_BITS;
        for (uint64_t line = record->addr >> LINE_BITS; line <= last; line++) {
            six->references++;
            /* A line touched again is the youngest in its set already. */
            if (six->latest == line + 1)
                continue;
            six->latest = line + 1;
            six->clock++;
            for (unsigned which = 0; which < CACHES; which++)
                touch(six, which, line);
        }
    }
    return 0;
}

static void reset(void *model) {
    struct six *six = model;
    six->references = 0;
    for (unsigned which = 0; which < CACHES; which++)
        six->caches[which].misses = 0;
}

static void report(void *model, const ichnos_report *report) {
    struct six *six = model;
    report->count(report->context, "references", six->references);
    for (unsigned which = 0; which < CACHES; which++)
        report->count(report->context, shapes[which].name, six->caches[which].misses);
}

const ichnos_model *ichnos_model_entry(void) {
    static const ichnos_model table = {.abi = ICHNOS_MODEL_ABI,
                                       .name = "six data caches",
                                       .create = create,
                                       .records = records,
                                       .reset = reset,
                                       .report = report,
                                       .destroy = free};
    return &table;
}
