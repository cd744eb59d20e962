/* Many threads alive at once: each works, waits until all have, and works on with what its neighbour did.
 *
 *   neighbours THREADS TURNS
 *
 * Every thread executes the same instructions of this file.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t all;
static unsigned count, turns;
static unsigned *shown;

static unsigned mix(unsigned x)
{
    for (unsigned i = 0; i < turns; i++)
        x = x * 1664525u + 1013904223u + (x >> 16);
    return x;
}

static void *work(void *arg)
{
    unsigned *own = arg;
    *own = mix((unsigned)(own - shown));
    pthread_barrier_wait(&all);
    unsigned neighbour = shown[(own - shown + 1u) % count];
    pthread_barrier_wait(&all);
    *own = mix(*own ^ neighbour);
    return NULL;
}

int main(int argc, char **argv)
{
    count = argc > 1 ? strtoul(argv[1], NULL, 10) : 8;
    turns = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
    pthread_t *threads = calloc(count, sizeof *threads);
    shown = calloc(count, sizeof *shown);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&all, NULL, count);
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, work, &shown[i]) != 0) {
            perror("pthread_create");
            exit(2);
        }
    unsigned sum = 0;
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum = sum * 31 + shown[i];
    }
    printf("%u threads: %08x\n", count, sum);
    return 0;
}
