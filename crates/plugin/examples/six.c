/* Six data caches of 32 KB in one pass, after the example of the calvin paper: direct mapped to four ways, with
 * different placement and replacement. Each thread has caches of its own.
 *
 *   cc -O2 -shared -fPIC -I crates/plugin/include -o libsix.so crates/plugin/examples/six.c
 *   ichnos record --tool ./libsix.so --sample 1000:10 -- ./prog
 *   ichnos sim --model ./libsix.so prog.ichnos
 *
 * Inside the program, once it is linked with the library; what it found is then printed at its end, all threads together:
 *
 *   ichnos cc --tool ./libsix.so -- gcc -O2 prog.c -o prog
 *   ichnos record -o none --sample 1000:10 -- ./prog
 *
 * The first count is that of references to lines of 64 bytes; the others are misses. The tests compare those with
 * modulo placement and LRU with another cache.
 *
 * A cache is kept from one sample to the next. What was not recorded between them would have changed it, so whether
 * the first touch of a line in a sample hits is not known until all places where the line can be were used in the
 * sample. The misses that are certain, and those that are possible, are counted besides (`at least`, `at most`):
 * `ichnos record` makes its intervals from them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "ichnos_model.h"
#include "ichnos_tool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_BITS = 6, BITS = 15 - LINE_BITS, LINES = 1 << BITS };
enum cache { ONE, ONE_XOR, TWO, TWO_SKEWED, FOUR, FOUR_RANDOM, CACHES };

static const char *const names[CACHES] = {"1 way, modulo",       "1 way, xor",          "2 ways, modulo, LRU",
                                          "2 ways, skewed, LRU", "4 ways, modulo, LRU", "4 ways, xor, random"};

/* Lines are numbered from one on; 0 is none. Samples are, too, and 0 is that of a thread of which all is seen. */
struct one {
    uint64_t line;
    uint64_t sample; /* in which it was last used */
};
struct two { /* a set in order of use */
    uint64_t line[2];
    uint32_t sample; /* in which the set was last used, */
    uint32_t fresh;  /* and how many of its lines were used in that */
};
struct four {
    uint64_t line[4];
    uint32_t sample, fresh;
};
struct skewed {
    uint64_t line;
    uint64_t time; /* of its last use */
};
struct random {
    uint64_t line[4];
    uint32_t sample[4];
};

/* The two lines touched last of a set of four, in this order: used in this sample, and still in all caches, but for the
 * second one in the first cache. Touched again, little changes. The second one is there only with the first. */
enum { LATE = LINES / 4 };
struct late {
    uint64_t line[2];
    struct skewed *frame[2];
    uint64_t time[2]; /* of the last use */
};

struct thread {
    struct late late[LATE];
    uint64_t used[LATE / 64]; /* sets that may have such lines */
    struct one one[LINES], one_xor[LINES];
    struct two two[LINES / 2];
    struct skewed skewed[2][LINES / 2];
    struct four four[LINES / 4];
    struct random random[LINES / 4];
    uint64_t clock, seed;
    uint64_t begun; /* the clock when the sample began */
    uint32_t sample;
};

struct six {
    uint64_t references, misses[CACHES], certain[CACHES], possible[CACHES];
    struct thread **threads;
    size_t known;
};

static void *create(const char *args, char *error, size_t error_bytes) {
    (void)args, (void)error, (void)error_bytes;
    return calloc(1, sizeof(struct six));
}

static void destroy(void *model) {
    struct six *six = model;
    for (size_t i = 0; i < six->known; i++)
        free(six->threads[i]);
    free(six->threads);
    free(six);
}

/* The caches of a thread; NULL if there is no memory for them. */
static struct thread *of(struct six *six, uint32_t number) {
    if (number >= six->known) {
        size_t known = (size_t)number + 1;
        struct thread **threads = realloc(six->threads, known * sizeof *threads);
        if (!threads)
            return NULL;
        for (size_t i = six->known; i < known; i++)
            threads[i] = NULL;
        six->threads = threads;
        six->known = known;
    }
    if (!six->threads[number] && (six->threads[number] = calloc(1, sizeof(struct thread))))
        six->threads[number]->seed = 1;
    return six->threads[number];
}

/* A hit is possibly a miss if the line was last used before the sample. */
static inline void hit(struct six *six, enum cache which, int known) { six->possible[which] += !known; }

/* A miss is certain if all that the line could be in was used in the sample. */
static inline void miss(struct six *six, enum cache which, int known) {
    six->misses[which]++;
    six->possible[which]++;
    six->certain[which] += known;
}

/* A set's lines touched last, from this one on, are that no more. */
static inline void forget(struct late *late, unsigned from) {
    for (; from < 2; from++)
        if (late->line[from]) {
            late->frame[from]->time = late->time[from];
            late->line[from] = 0;
        }
}

/* A line leaves a cache. */
static inline void leaves(struct thread *own, uint64_t line) {
    struct late *late = &own->late[line % LATE];
    if (line && late->line[0] == line)
        forget(late, 0);
    else if (line && late->line[1] == line)
        forget(late, 1);
}

static inline void direct(struct six *six, const struct thread *own, enum cache which, struct one *frame,
                          uint64_t line) {
    int known = frame->sample == own->sample;
    if (frame->line == line) {
        hit(six, which, known);
    } else {
        miss(six, which, known);
        frame->line = line;
    }
    frame->sample = own->sample;
}

/* A set of `ways` lines in order of use. */
static inline __attribute__((always_inline)) void set(struct six *six, const struct thread *own, enum cache which, uint64_t *lines, unsigned ways,
                       uint32_t *sample, uint32_t *fresh, uint64_t line) {
    if (*sample != own->sample) {
        *sample = own->sample;
        *fresh = 0;
    }
    /* Of a thread of which all is seen, what is empty is so for certain. */
    unsigned seen = own->sample ? *fresh : ways, at = 0;
    for (unsigned way = 0; way < ways; way++)
        at += lines[way] != line ? at == way : 0;
    if (at < ways) {
        hit(six, which, at < seen);
    } else {
        miss(six, which, seen == ways);
        at = ways - 1;
    }
    if (at >= *fresh && *fresh < ways)
        ++*fresh;
    for (unsigned way = ways - 1; way; way--)
        lines[way] = way <= at ? lines[way - 1] : lines[way];
    lines[0] = line;
}

static inline void modulo(struct six *six, struct thread *own, uint64_t line) {
    struct four *four = &own->four[line % (LINES / 4)];
    /* The line used last in its set of this cache, in this sample, is that also in its set of the others. */
    if (four->line[0] == line && four->sample == own->sample && four->fresh)
        return;
    set(six, own, FOUR, four->line, 4, &four->sample, &four->fresh, line);
    struct two *two = &own->two[line % (LINES / 2)];
    set(six, own, TWO, two->line, 2, &two->sample, &two->fresh, line);
    direct(six, own, ONE, &own->one[line % LINES], line);
}

/* Tells a frame when its line was last used. */
static inline void settle(const struct thread *own, struct skewed *frame) {
    const struct late *late = &own->late[frame->line % LATE];
    for (unsigned i = 0; i < 2; i++)
        if (frame->line && late->line[i] == frame->line)
            frame->time = late->time[i];
}

/* Each way mixes the tag in by another function. */
static inline struct skewed *skewed(struct six *six, struct thread *own, uint64_t line) {
    uint64_t tag = line / (LINES / 2);
    struct skewed *first = &own->skewed[0][(line ^ tag) % (LINES / 2)];
    struct skewed *second = &own->skewed[1][(line ^ (tag * 3 + (tag >> 3))) % (LINES / 2)];
    struct skewed *frame = first->line == line ? first : second;
    if (frame->line == line) {
        hit(six, TWO_SKEWED, frame->time > own->begun || !own->sample);
    } else {
        settle(own, first);
        settle(own, second);
        /* The elder of the two goes: it was used in the sample only if both were. */
        frame = first->time <= second->time ? first : second;
        miss(six, TWO_SKEWED, frame->time > own->begun || !own->sample);
        leaves(own, frame->line);
        frame->line = line;
    }
    frame->time = own->clock;
    return frame;
}

static inline void at_random(struct six *six, struct thread *own, uint64_t line) {
    struct random *set = &own->random[(line ^ line / (LINES / 4)) % (LINES / 4)];
    unsigned way = 4;
    for (unsigned i = 0; i < 4; i++)
        way = set->line[i] == line ? i : way;
    if (way < 4) {
        hit(six, FOUR_RANDOM, set->sample[way] == own->sample);
    } else {
        unsigned known = 1, empty = 4;
        for (unsigned i = 4; i--;) {
            known &= set->sample[i] == own->sample;
            empty = set->line[i] ? empty : i;
        }
        miss(six, FOUR_RANDOM, known);
        /* A way that is free comes first. */
        own->seed = own->seed * 6364136223846793005u + 1442695040888963407u;
        way = empty < 4 ? empty : (unsigned)(own->seed >> 33) % 4;
        leaves(own, set->line[way]);
        set->line[way] = line;
    }
    set->sample[way] = own->sample;
}

/* A line that was not touched lately. */
static __attribute__((noinline)) void touch(struct six *six, struct thread *own, uint64_t line) {
    struct late *late = &own->late[line % LATE];
    forget(late, 1);
    modulo(six, own, line);
    struct one *frame = &own->one_xor[(line ^ line / LINES) % LINES];
    if (frame->line != line)
        leaves(own, frame->line);
    direct(six, own, ONE_XOR, frame, line);
    at_random(six, own, line);
    struct skewed *skew = skewed(six, own, line);
    late->line[1] = late->line[0], late->frame[1] = late->frame[0], late->time[1] = late->time[0];
    late->line[0] = line, late->frame[0] = skew, late->time[0] = own->clock;
    own->used[line % LATE / 64] |= (uint64_t)1 << line % 64;
}

static inline void swap(uint64_t *lines) {
    uint64_t first = lines[0];
    lines[0] = lines[1];
    lines[1] = first;
}

/* The second of a set: it and the first change places wherever they share a set, and may share a frame of the first
 * cache. */
static inline void again(struct six *six, struct thread *own, struct late *late, uint64_t line) {
    struct skewed *frame = late->frame[1];
    direct(six, own, ONE, &own->one[line % LINES], line);
    swap(own->four[line % (LINES / 4)].line);
    if ((late->line[0] ^ line) % (LINES / 2) == 0)
        swap(own->two[line % (LINES / 2)].line);
    late->line[1] = late->line[0], late->frame[1] = late->frame[0], late->time[1] = late->time[0];
    late->line[0] = line, late->frame[0] = frame, late->time[0] = own->clock;
}

static inline void reference(struct six *six, struct thread *own, uint64_t line) {
    struct late *late = &own->late[line % LATE];
    six->references++;
    own->clock++;
    if (late->line[0] == line)
        late->time[0] = own->clock;
    else if (late->line[1] == line)
        again(six, own, late, line);
    else
        touch(six, own, line);
}

static int records(void *model, const ichnos_batch *batch) {
    struct six *six = model;
    struct thread *own = of(six, batch->thread);
    if (!own)
        return 1;
    for (size_t i = 0; i < batch->count; i++) {
        const ichnos_record *record = &batch->records[i];
        if (record->kind != ICHNOS_LOAD && record->kind != ICHNOS_STORE)
            continue;
        uint64_t last = (record->addr + (record->size ? record->size - 1 : 0)) >> LINE_BITS;
        for (uint64_t line = record->addr >> LINE_BITS; line <= last; line++)
            reference(six, own, line + 1);
    }
    return 0;
}

static void thread(void *model, uint32_t number, uint32_t process, int alive) {
    struct six *six = model;
    (void)process;
    if (alive == 0 && number < six->known) {
        free(six->threads[number]);
        six->threads[number] = NULL;
    } else if (alive == 2) {
        struct thread *own = of(six, number);
        if (!own)
            return;
        for (unsigned i = 0; i < LATE / 64; i++)
            for (; own->used[i]; own->used[i] &= own->used[i] - 1)
                forget(&own->late[64 * i + (unsigned)__builtin_ctzll(own->used[i])], 0);
        own->begun = own->clock;
        own->sample++;
    }
}

static void reset(void *model) {
    struct six *six = model;
    six->references = 0;
    for (unsigned which = 0; which < CACHES; which++)
        six->misses[which] = six->certain[which] = six->possible[which] = 0;
}

static void report(void *model, const ichnos_report *report) {
    struct six *six = model;
    static char least[CACHES][40], most[CACHES][40];
    report->count(report->context, "references", six->references);
    for (unsigned which = 0; which < CACHES; which++)
        report->count(report->context, names[which], six->misses[which]);
    for (unsigned which = 0; which < CACHES; which++) {
        if (!least[which][0]) {
            snprintf(least[which], sizeof least[which], "%s, at least", names[which]);
            snprintf(most[which], sizeof most[which], "%s, at most", names[which]);
        }
        report->count(report->context, least[which], six->certain[which]);
        report->count(report->context, most[which], six->possible[which]);
    }
}

const ichnos_model *ichnos_model_entry(void) {
    static const ichnos_model table = {.abi = ICHNOS_MODEL_ABI,
                                       .flags = ICHNOS_TELL_SAMPLES | ICHNOS_REFERENCES_ONLY,
                                       .name = "six data caches",
                                       .create = create,
                                       .records = records,
                                       .thread = thread,
                                       .reset = reset,
                                       .report = report,
                                       .destroy = destroy};
    return &table;
}

/* The same inside a program: each thread has a model with one thread. */
struct inside {
    struct six six;
    struct thread own;
    struct inside *next;
};

static struct inside *_Atomic all;
static __thread struct inside *mine;

static struct inside *begin(void) {
    struct inside *inside = calloc(1, sizeof *inside);
    if (!inside)
        return NULL;
    inside->own.seed = 1;
    inside->next = atomic_load(&all);
    while (!atomic_compare_exchange_weak(&all, &inside->next, inside))
        continue;
    return mine = inside;
}

void ichnos_tool_load(uint64_t addr, uint64_t size) {
    struct inside *inside = mine ? mine : begin();
    uint64_t last = (addr + (size ? size - 1 : 0)) >> LINE_BITS;
    for (uint64_t line = addr >> LINE_BITS; inside && line <= last; line++)
        reference(&inside->six, &inside->own, line + 1);
}

void ichnos_tool_store(uint64_t addr, uint64_t size) { ichnos_tool_load(addr, size); }

__attribute__((destructor)) static void tell(void) {
    struct six sum = {0};
    for (struct inside *inside = atomic_load(&all); inside; inside = inside->next) {
        sum.references += inside->six.references;
        for (unsigned which = 0; which < CACHES; which++)
            sum.misses[which] += inside->six.misses[which];
    }
    if (!sum.references)
        return;
    fprintf(stderr, "six data caches\n  references: %llu\n", (unsigned long long)sum.references);
    for (unsigned which = 0; which < CACHES; which++)
        fprintf(stderr, "  %s: %llu\n", names[which], (unsigned long long)sum.misses[which]);
}
