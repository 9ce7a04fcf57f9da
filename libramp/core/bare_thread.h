/*
 * A bare thread: it is not the C library's, runs on its maker's thread pointer, and must touch nothing of it.
 */
#ifndef RAMP_CORE_BARE_THREAD_H
#define RAMP_CORE_BARE_THREAD_H

#include <stdatomic.h>
#include <stdint.h>

/* Begins a thread that calls fn(arg) and ends. `top` is its stack's end, aligned to 16. The kernel clears
   *alive, and wakes its futex, when the thread has left that stack. Returns its number, or a negative errno. */
int bare_thread_begin(int (*fn)(void *arg), void *arg, void *top, _Atomic uint32_t *alive);

#endif
