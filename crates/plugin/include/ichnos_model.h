/* The interface between ichnos and a model in a shared library, version 1.
 *
 * A library exports one function, `ichnos_model_entry`, which gives a table of
 * functions. `ichnos sim --model ./libmine.so:ARGS` loads the library, makes one
 * model with `create`, shows it the whole trace, stored or live, and prints what
 * `report` tells, beside the models that ichnos has itself.
 *
 * All functions are called from one thread, one at a time. Pointers given to
 * a function are valid until it returns, and no longer. Versions differ in
 * `abi`; ichnos refuses a library of another version.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef ICHNOS_MODEL_H
#define ICHNOS_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ICHNOS_MODEL_ABI 1u

/* What a record is. Skip kinds that you do not know. */
enum {
    ICHNOS_INSN = 0,     /* an instruction retired */
    ICHNOS_LOAD = 1,     /* the current instruction read memory */
    ICHNOS_STORE = 2,    /* ... wrote memory */
    ICHNOS_PREFETCH = 3, /* ... asked for memory to be brought nearer */
    ICHNOS_FLUSH = 4,    /* ... wrote back or dropped a cache line */
    ICHNOS_BRANCH = 5    /* ... transferred control, or might have */
};

/* The `detail` of ICHNOS_INSN: what the instruction does to control flow. */
enum {
    ICHNOS_OTHER = 0,
    ICHNOS_JUMP = 1,
    ICHNOS_JUMP_INDIRECT = 2,
    ICHNOS_CONDITIONAL = 3,
    ICHNOS_CALL = 4,
    ICHNOS_CALL_INDIRECT = 5,
    ICHNOS_RETURN = 6,
    ICHNOS_SYSCALL = 7
};

/* The `detail` of the kinds 1 to 4: a set of bits. */
enum {
    ICHNOS_ATOMIC = 1,
    ICHNOS_NON_TEMPORAL = 2,
    ICHNOS_STACK = 4,
    ICHNOS_LANE = 8,
    ICHNOS_STRING = 16,
    ICHNOS_STATE = 32,
    ICHNOS_FOR_WRITE = 64
};

/* One thing that a thread did: 16 bytes. */
typedef struct ichnos_record {
    uint8_t kind;    /* ICHNOS_INSN and so on */
    uint8_t detail;  /* by kind, see above; of ICHNOS_BRANCH: 1 if taken */
    uint16_t unused; /* 0 */
    uint32_t size;   /* bytes of the instruction or of the access; of a branch 0 */
    uint64_t addr;   /* the instruction, the lowest byte accessed, or the target */
} ichnos_record;

/* Consecutive records of one thread in program order. A batch may end between
 * an instruction and its accesses. */
typedef struct ichnos_batch {
    uint32_t thread;       /* numbered from 0 in the order of their beginning */
    uint32_t process;      /* whose address space */
    uint64_t insns_before; /* instructions of this thread before the batch */
    const ichnos_record *records;
    size_t count;
} ichnos_batch;

/* Takes results, in the order in which they are to be printed. Keys and texts are
 * UTF-8 and end with 0. */
typedef struct ichnos_report {
    void *context; /* to be given back as the first argument */
    void (*count)(void *context, const char *key, uint64_t value);
    void (*number)(void *context, const char *key, double value);
    void (*text)(void *context, const char *key, const char *value);
} ichnos_report;

/* In a model's `flags`: tell it of samples. */
#define ICHNOS_TELL_SAMPLES 1u
/* In a model's `flags`: it looks at kinds 1 to 4 alone, so that others may be left out; then instructions may not be
 * counted, either (`insns_before` is 0). */
#define ICHNOS_REFERENCES_ONLY 2u

/* A model's functions. Those marked optional may be NULL. */
typedef struct ichnos_model {
    uint32_t abi;   /* ICHNOS_MODEL_ABI */
    uint32_t flags; /* ICHNOS_TELL_SAMPLES and ICHNOS_REFERENCES_ONLY, or 0 */
    const char *name; /* for the heading of the results */
    /* Makes a model; `args` is what follows the colon, "" if nothing does. On
     * failure gives NULL and writes a sentence, ended with 0, into `error`. */
    void *(*create)(const char *args, char *error, size_t error_bytes);
    /* Takes records. Gives 0 to go on, anything else if it has seen enough. */
    int (*records)(void *model, const ichnos_batch *batch);
    /* Optional: a thread begins (`alive` is 1) or ended (0); if the model asked for it, also that a sample of
     * the thread begins (2): what it did since the sample before was not recorded. That may be told more than
     * once before a sample. */
    void (*thread)(void *model, uint32_t thread, uint32_t process, int alive);
    /* Optional: the warm-up is over; forget counts, keep contents. */
    void (*reset)(void *model);
    /* Tells the results so far. */
    void (*report)(void *model, const ichnos_report *report);
    /* Optional: frees the model. */
    void (*destroy)(void *model);
} ichnos_model;

/* What the library exports. */
const ichnos_model *ichnos_model_entry(void);

#ifdef __cplusplus
}
#endif

#endif
