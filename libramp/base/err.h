/*
 * Errors: a code for the caller and a sentence for a person.
 *
 * Functions of rampfs return 0 (or a count) on success and a negative errno on failure, and
 * fill the caller's struct ramp_err with one sentence. The function that first decides that an
 * operation has failed words it; callers may put more in front (ramp_err_wrap).
 *
 * Thread-safety: a struct ramp_err belongs to its caller. Every function takes NULL for it.
 */
#ifndef RAMP_ERR_H
#define RAMP_ERR_H

#define RAMP_ERR_TEXT_BYTES 256

struct ramp_err {
	int code;			/* a positive errno; 0: nothing has failed */
	char text[RAMP_ERR_TEXT_BYTES]; /* NUL-terminated, cut where it is too long */
};

/* Fills `err` with `code` (a positive errno) and the message; returns -code. */
int ramp_err_set(struct ramp_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same, with ": " and strerror(code) behind the message. */
int ramp_err_sys(struct ramp_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts the message and ": " in front of what `err` says; returns -err->code (-EIO for NULL). */
int ramp_err_wrap(struct ramp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The static analyzer cannot see that these never return 0, and errno as a code would hide it. */
#ifdef __clang_analyzer__
#define ramp_err_set(...)  (ramp_err_set(__VA_ARGS__), -1)
#define ramp_err_sys(...)  (ramp_err_sys(__VA_ARGS__), -1)
#define ramp_err_wrap(...) (ramp_err_wrap(__VA_ARGS__), -1)
#endif

#endif
