/*
 * Polling for a moment before sleeping, as long as that pays.
 *
 * To wake a thread that sleeps costs more than a page (DESIGN, "Measured facts"), and to poll costs
 * a processor that others may want. So a thread that has just had something to do asks for SPIN_US
 * more without sleeping; where that has found nothing SPIN_MISSES times in a row, it sleeps at once
 * for the next SPIN_REST rounds.
 *
 * Between two polls whoever waits for this processor goes first (sched_yield): on a small machine
 * that is the very program whose page has just come, or the thread that is to answer. Without it a
 * page fault takes a third longer here, and its p99 is the whole of SPIN_US. But where somebody
 * wants the processor all the time, who yields gets it back after a whole time slice, milliseconds,
 * and one that sleeps is woken before that: a yield that took SPIN_CROWDED_US is the last for some
 * rounds, and for many where that happens again within SPIN_AGAIN. (A single one, as a quiet
 * machine has them now and then, costs nobody anything.)
 *
 * A thread that may be `firm` goes on polling then, at real-time priority, where nobody can take
 * the processor from it; its owner sees to that there is another one, for whoever waits for what it
 * does. Where that one stands in line behind this thread all the same, the poll finds nothing, and
 * one such poll is enough to sleep for SPIN_FIRM_REST: of more than a hundred rounds only one is to
 * be as late, since p99 would be that. (Beside an attacker who computes all the time p99 is a
 * quarter by that; where it was 6 rounds, beside one who sends garbage, twice as long. On a quiet
 * machine the median would be half as long again, where a program and the thread that serves it
 * share a processor.) It is not firm while it has several to serve, of whom each wants a processor
 * when the other's poll has it (spin_another).
 *
 * One thread's own; nothing here locks or allocates. Times are of one clock that does not go back,
 * in microseconds.
 */
#ifndef RAMP_SPIN_H
#define RAMP_SPIN_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define SPIN_US	    50
#define SPIN_MISSES 8
#define SPIN_REST   64

#define SPIN_CROWDED_US	  100
#define SPIN_CROWDED_REST 8
#define SPIN_AGAIN	  1024 /* rounds after which a long yield is the first again */
#define SPIN_AGAIN_REST	  1024
#define SPIN_FIRM	  4096
#define SPIN_FIRM_REST	  128
#define SPIN_SEVERAL	  64

struct spin {
	uint64_t until_us;   /* 0: not polling */
	uint64_t yielded_us; /* when the poll began after which it yielded; 0: it did not */
	uint64_t polled_us;  /* when the last poll began */
	int misses, rest;
	int again;	  /* rounds in which a long yield is not the first */
	int firm;	  /* rounds in which it does not yield */
	int changed;	  /* rounds in which whom it serves has changed before */
	int several;	  /* rounds in which it is not to be firm */
	bool may_be_firm; /* set by the owner; the rest begins as 0 */
};

static inline void spin_is_crowded(struct spin *spin)
{
	const struct spin was = *spin;

	if (!was.again)
		*spin = (struct spin){.rest = SPIN_CROWDED_REST, .again = SPIN_AGAIN};
	else if (was.may_be_firm && !was.several)
		*spin = (struct spin){.firm = SPIN_FIRM, .again = SPIN_FIRM + SPIN_AGAIN};
	else
		*spin = (struct spin){.rest = SPIN_AGAIN_REST,
				      .again = SPIN_AGAIN_REST + SPIN_AGAIN};
	spin->may_be_firm = was.may_be_firm;
	spin->changed = was.changed;
	spin->several = was.several;
}

/* What happened was somebody else's than what happened before; once, that is the next one. */
static inline void spin_another(struct spin *spin)
{
	if (spin->changed) {
		spin->several = SPIN_SEVERAL;
		spin->firm = 0;
	}
	spin->changed = SPIN_SEVERAL;
}

/* There is one again. Where it was crowded for the second time meanwhile it is firm now. */
static inline void spin_one_again(struct spin *spin)
{
	if (spin->may_be_firm && spin->again > SPIN_AGAIN) {
		spin->rest = 0;
		spin->firm = SPIN_FIRM;
		spin->again = SPIN_FIRM + SPIN_AGAIN;
	}
}

/* How long to sleep now: wait_ms, or 0 while polling pays. */
static inline int spin_wait_ms(struct spin *spin, uint64_t now_us, int wait_ms)
{
	if (spin->yielded_us && now_us >= spin->yielded_us + SPIN_CROWDED_US) {
		spin_is_crowded(spin);
		return wait_ms;
	}
	spin->yielded_us = 0;
	if (spin->rest == 0 && now_us < spin->until_us) {
		spin->polled_us = now_us;
		return 0;
	}
	if (spin->until_us && spin->rest == 0 && ++spin->misses >= (spin->firm ? 1 : SPIN_MISSES)) {
		spin->misses = 0;
		spin->rest = spin->firm ? SPIN_FIRM_REST : SPIN_REST;
	}
	spin->until_us = 0;
	return wait_ms;
}

/* A wait has found nothing. True: it was a poll, and it is time for the next one. */
static inline bool spin_again(struct spin *spin)
{
	if (spin->until_us == 0)
		return false;
	if (!spin->firm) {
		spin->yielded_us = spin->polled_us;
		sched_yield();
	}
	return true;
}

/* There was something to do. */
static inline void spin_happened(struct spin *spin, uint64_t now_us)
{
	spin->again -= spin->again > 0;
	spin->firm -= spin->firm > 0;
	spin->changed -= spin->changed > 0;
	if (spin->several && --spin->several == 0)
		spin_one_again(spin);
	spin->rest -= spin->rest > 0;
	if (spin->until_us)
		spin->misses = 0;
	spin->until_us = now_us + SPIN_US;
}

#endif
