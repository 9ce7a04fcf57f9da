/*
 * Work for strangers, of which there may be more than a machine has time for.
 *
 * Where somebody asks for it as fast as it is done, a thread that does it takes a processor from
 * others for good; with two of them, page faults wait for that. So what is done is counted, and
 * when it is more than a quarter of the machine's time over a while (or PACE_BURST_US at once) it
 * is time to take nothing new for a moment: whoever asks waits in his queue in the kernel, and does
 * not compute meanwhile either. From four processors on a single thread never comes to that.
 *
 * One thread's own; nothing here locks or allocates. Times are of one clock that does not go back,
 * in microseconds.
 */
#ifndef RAMP_PACE_H
#define RAMP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_PARTS    4u     /* of all processors' time, one */
#define PACE_BURST_US 100000 /* what may be done at once after a quiet second */
#define PACE_REST_MS  250u   /* no rest is longer, whatever was done before */

struct pace {
	uint32_t processors; /* set by the owner; the rest begins as 0 */
	uint64_t spent_us, since_us;
};

/* By now so much has been done, `us` of it since the last call. */
static inline void pace_spend(struct pace *pace, uint64_t now_us, uint64_t us)
{
	uint64_t free_us = (now_us - pace->since_us) * pace->processors / PACE_PARTS;
	uint64_t most_us = PACE_BURST_US + PACE_REST_MS * 1000ull * pace->processors / PACE_PARTS;

	pace->spent_us -= free_us < pace->spent_us ? free_us : pace->spent_us;
	pace->since_us = now_us;
	pace->spent_us += us;
	if (pace->spent_us > most_us)
		pace->spent_us = most_us;
}

/* So much has been done that pieces of it had better be small: rests come soon, if they don't yet. */
static inline bool pace_is_long(const struct pace *pace)
{
	return pace->spent_us > PACE_BURST_US / 2;
}

/* For how long nothing new is to be taken, as of the last pace_spend; 0: go on. */
static inline uint64_t pace_rest_ms(const struct pace *pace)
{
	uint64_t over_us;

	if (pace->spent_us <= PACE_BURST_US)
		return 0;
	over_us = (pace->spent_us - PACE_BURST_US) * PACE_PARTS / pace->processors;
	return (over_us + 999) / 1000;
}

#endif
