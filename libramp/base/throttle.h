/*
 * Work for strangers, of which there may be more than a machine has time for.
 *
 * Where somebody asks for it as fast as it is done, a thread that does it takes a processor from
 * others for good; with two of them, page faults wait for that. So what is done is counted. As long
 * as it is a part in 64 of the machine's time over a while, or THROTTLE_BURST_US more at once, it is
 * done as it comes, but for a rest after each THROTTLE_PIECE_US of it, as long as that. When it is more
 * ("long"), it is done in pieces as small as they are, and after each of them comes a rest
 * THROTTLE_RESTS times as long, but not so long that those who ask for what is costly keep others
 * waiting: whoever asks waits in his queue in the kernel then, and does not compute meanwhile
 * either. (It is the pieces that page faults of others feel: who is woken beside a thread that has
 * slept much may have to wait until it sleeps again, whatever his time slice is. Pieces of a
 * millisecond make their p99 twice as long as these.)
 *
 * One thread's own; nothing here locks or allocates. Times are of one clock that does not go back,
 * in microseconds.
 */
#ifndef RAMP_THROTTLE_H
#define RAMP_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#define THROTTLE_PARTS	  64u	 /* of all processors' time, one */
#define THROTTLE_BURST_US 150000 /* what may be done at once after some quiet seconds */
#define THROTTLE_OVER_US  20000	 /* so much beyond it is remembered, whatever was done */
#define THROTTLE_PIECE_US 150u
#define THROTTLE_RESTS	  16u
#define THROTTLE_REST_US  2000u /* no rest is longer */

struct throttle {
	uint32_t processors; /* set by the owner; the rest begins as 0 */
	uint64_t spent_us, since_us;
	uint64_t piece_us; /* what this thread has done since the last rest */
};

/* By now so much has been done, `us` of it since the last call, here or elsewhere. */
static inline void throttle_spend(struct throttle *throttle, uint64_t now_us, uint64_t us)
{
	uint64_t free_us = (now_us - throttle->since_us) * throttle->processors / THROTTLE_PARTS;

	throttle->spent_us -= free_us < throttle->spent_us ? free_us : throttle->spent_us;
	throttle->since_us +=
		free_us * THROTTLE_PARTS / throttle->processors; /* the rest of it is not lost */
	throttle->spent_us += us;
	if (throttle->spent_us > THROTTLE_BURST_US + THROTTLE_OVER_US)
		throttle->spent_us = THROTTLE_BURST_US + THROTTLE_OVER_US;
}

/* So much of what was spent was of use. */
static inline void throttle_refund(struct throttle *throttle, uint64_t us)
{
	throttle->spent_us -= us < throttle->spent_us ? us : throttle->spent_us;
}

/* As of the last throttle_spend. */
static inline bool throttle_is_long(const struct throttle *throttle)
{
	return throttle->spent_us > THROTTLE_BURST_US;
}

/* This thread has computed so long for them. For how long nothing is to be done now; 0: go on. */
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
