/*
 * A rate limiter for work that any user may cause by connecting, which may be more than a machine
 * has time for.
 *
 * If clients ask for such work as fast as it is done, the thread that does it takes a processor
 * from other threads for good; with two such threads, page faults wait for them. So the time spent
 * is counted. As long as it is a part in 64 of the machine's time over a while, or
 * THROTTLE_BURST_US more at once, work is done as it comes, except for a rest after each
 * THROTTLE_PIECE_US of it, as long as that. When it is more ("long"), work is done in pieces of the
 * same size, and after each of them comes a rest THROTTLE_RESTS times as long, but not so long that
 * clients with costly requests keep other clients waiting. A client waits in its queue in the
 * kernel meanwhile, and does not compute either. (The size of the pieces is what page faults of
 * others feel: a thread that is woken beside a thread that has slept much may have to wait until
 * that sleeps again, whatever its time slice is. Pieces of a millisecond make the p99 of page
 * faults twice as long as these.)
 *
 * A struct throttle belongs to one thread; nothing here locks or allocates. Times are of one clock
 * that does not go back, in microseconds.
 */
#ifndef RAMP_THROTTLE_H
#define RAMP_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#define THROTTLE_PARTS	  64u	 /* of all processors' time, one */
#define THROTTLE_BURST_US 150000 /* may be spent at once after some quiet seconds */
#define THROTTLE_OVER_US  20000	 /* no more beyond that is remembered */
#define THROTTLE_PIECE_US 150u
#define THROTTLE_RESTS	  16u
#define THROTTLE_REST_US  2000u /* no rest is longer */

struct throttle {
	uint32_t processors; /* set by the owner; the rest begins as 0 */
	uint64_t spent_us, since_us;
	uint64_t piece_us; /* spent by this thread since its last rest */
};

/* Counts `us` that were spent since the last call, by this thread or others. */
static inline void throttle_spend(struct throttle *throttle, uint64_t now_us, uint64_t us)
{
	uint64_t free_us = (now_us - throttle->since_us) * throttle->processors / THROTTLE_PARTS;

	throttle->spent_us -= free_us < throttle->spent_us ? free_us : throttle->spent_us;
	/* The remainder of the division is not lost. */
	throttle->since_us += free_us * THROTTLE_PARTS / throttle->processors;
	throttle->spent_us += us;
	if (throttle->spent_us > THROTTLE_BURST_US + THROTTLE_OVER_US)
		throttle->spent_us = THROTTLE_BURST_US + THROTTLE_OVER_US;
}

/* Takes back `us` of the time spent, which turned out to be of use. */
static inline void throttle_refund(struct throttle *throttle, uint64_t us)
{
	throttle->spent_us -= us < throttle->spent_us ? us : throttle->spent_us;
}

/* Whether more was spent than is done as it comes, as of the last throttle_spend. */
static inline bool throttle_is_long(const struct throttle *throttle)
{
	return throttle->spent_us > THROTTLE_BURST_US;
}

/* Counts `us` that this thread has worked for such clients. Returns how long it must do nothing for
   them now; 0: it may continue. */
static inline uint64_t throttle_rest_us(struct throttle *throttle, uint64_t us)
{
	uint64_t rest_us;

	throttle->piece_us += us;
	if (!throttle_is_long(throttle) && throttle->piece_us < THROTTLE_PIECE_US)
		return 0;
	rest_us = throttle->piece_us * (throttle_is_long(throttle) ? THROTTLE_RESTS : 1);
	throttle->piece_us = 0;
	return rest_us < THROTTLE_REST_US ? rest_us : THROTTLE_REST_US;
}

#endif
