/*
 * CLOCK_MONOTONIC of this machine: a time that does not go back and that no process sets.
 *
 * Thread-safety: any thread; also from a signal handler.
 */
#ifndef RAMP_CLOCK_H
#define RAMP_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_us(void)
{
	return clock_ns() / 1000;
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

static inline double clock_s(void)
{
	return (double)clock_ns() / 1e9;
}

#endif
