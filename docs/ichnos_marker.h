/* Markers: places in a program at which `ichnos record` begins or ceases to record.
 *
 *   #include "ichnos_marker.h"
 *   ICHNOS_MARKER(solve)              at file scope, in as many files as you like
 *   ICHNOS_MARKER(solved)
 *   ... ICHNOS_MARK(solve); solve(); ICHNOS_MARK(solved); ...
 *
 *   ichnos cc -- gcc -O2 prog.c -o prog
 *   ichnos record --start marker:solve --stop marker:solved -- ./prog
 *
 * A marker is an empty function that compilers neither inline nor leave out.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef ICHNOS_MARKER_H
#define ICHNOS_MARKER_H

#ifdef __cplusplus
#define ICHNOS_MARKER_LINKAGE extern "C"
#else
#define ICHNOS_MARKER_LINKAGE
#endif

/* Declares a marker. */
#define ICHNOS_MARKER(name) \
    ICHNOS_MARKER_LINKAGE void ichnos_marker_##name(void); \
    ICHNOS_MARKER_LINKAGE __attribute__((weak, noinline)) void ichnos_marker_##name(void) { __asm__ volatile(""); }

/* Control comes to it. */
#define ICHNOS_MARK(name) ichnos_marker_##name()

#endif
