/*
 * What the programs that use libramp have in common.
 */
#ifndef RAMP_API_USER_H
#define RAMP_API_USER_H

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ramp.h"

#define MIB (UINT64_C(1) << 20)

static inline _Noreturn void fail_at(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: %s: %s\n", strrchr(file, '/') + 1, line, what, ramp_error());
	exit(1);
}
#define fail(what) fail_at(__FILE__, __LINE__, what)
#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what))                                                                       \
			fail(#what);                                                               \
	} while (0)

/* A thread sets it (sigsetjmp) before it touches what may have left. */
static _Thread_local sigjmp_buf out_of_touch;

static inline void on_bus(int signo)
{
	(void)signo;
	siglongjmp(out_of_touch, 1);
}

static inline void catch_bus(void)
{
	struct sigaction action = {.sa_handler = on_bus};

	sigaction(SIGBUS, &action, NULL);
}

/* Returns the word there, or -1 where a touch is SIGBUS. */
static inline int64_t load(const volatile uint64_t *at)
{
	return sigsetjmp(out_of_touch, 1) ? -1 : (int64_t)*at;
}

static inline uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Says a word to the script. */
static inline void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

/* Says a word, and waits for a line of the script. */
static inline void say_and_wait(const char *word)
{
	say(word);
	CHECK(getchar() == '\n');
}

#endif
