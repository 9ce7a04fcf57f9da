/*
 * CLOCK_MONOTONIC, as all of programs/ counts time.
 */
#ifndef RAMP_PROGRAMS_CLOCK_H
#define RAMP_PROGRAMS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

static inline uint64_t now_ms(void)
{
	return now_us() / 1000;
}

#endif
