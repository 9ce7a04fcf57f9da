/*
 * The words of the calling thread's last failure (ramp_error).
 */
#ifndef RAMP_API_ERROR_H
#define RAMP_API_ERROR_H

/* Keeps "WHAT: WHY" (WHY empty: the errno's text). Returns -code. */
int error_set(int code, const char *what, const char *why);
/* Forgets the words. Returns 0. */
int error_none(void);

#endif
