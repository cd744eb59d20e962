/* The word by which recordings of programs built by `ichnos cc` are switched on and off.
 *
 * `ichnos record --shared FILE -- PROG` maps FILE's first page into PROG and all its children. Whoever may write
 * FILE can map it too and write its first word: not zero, and every thread is recorded from its next event
 * (function entry, or loop turn with `--events calls,loops`) on; zero, and it is not. Several recordings with one FILE are
 * switched together.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef ICHNOS_SWITCH_H
#define ICHNOS_SWITCH_H

#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The word in a file, which is made if it is not there; NULL if that fails (see errno). It stays mapped. */
static inline volatile unsigned *ichnos_switch_open(const char *path)
{
    void *page = MAP_FAILED;
    struct stat now;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &now) == 0 && (now.st_size >= 4096 || ftruncate(fd, 4096) == 0))
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page == MAP_FAILED ? NULL : (volatile unsigned *)page;
}

/* Switches on (not zero) or off. */
static inline void ichnos_switch_set(volatile unsigned *word, unsigned on)
{
    __atomic_store_n(word, on, __ATOMIC_RELAXED);
}

/* What the word is now. */
static inline unsigned ichnos_switch_get(volatile unsigned *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

#endif
