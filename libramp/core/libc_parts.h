/*
 * Functions that not every C library has, so that the shim loads beside any: a name that the loader
 * does not find ends each program that a program with the shim starts (exit status 127), also those
 * that map no segment.
 */
#ifndef RAMP_LIBC_PARTS_H
#define RAMP_LIBC_PARTS_H

/* Returns the errno's text in English. */
const char *errno_text(int code);
/* pthread_atfork(3). Returns 0, or a positive errno. */
int register_fork_handlers(void (*prepare)(void), void (*in_parent)(void), void (*in_child)(void));

#endif
