/*
 * Polling for a moment before sleeping, as long as that pays.
 *
 * To wake a thread that sleeps costs more than a page (DESIGN, "Measured facts"), and to poll costs
 * a processor that others may want. So a thread that has just had something to do asks for ADAPTIVE_POLL_US
 * more without sleeping; where that has found nothing ADAPTIVE_POLL_MISSES times in a row, it sleeps at once
 * for the next ADAPTIVE_POLL_REST rounds.
 *
 * Between two polls whoever waits for this processor goes first (sched_yield): on a small machine
 * that is the very program whose page has just come, or the thread that is to answer. Without it a
 * page fault takes a third longer here, and its p99 is the whole of ADAPTIVE_POLL_US. But where somebody
 * wants the processor all the time, who yields gets it back after a whole time slice, milliseconds,
 * and one that sleeps is woken before that: a yield that took ADAPTIVE_POLL_CROWDED_US is the last for some
 * rounds, and for many where that happens again within ADAPTIVE_POLL_AGAIN. (A single one, as a quiet
 * machine has them now and then, costs nobody anything.)
 *
 * A thread that may be `firm` goes on polling then, at real-time priority, where nobody can take
 * the processor from it; its owner sees to that there is another one, for whoever waits for what it
 * does. Where that one stands in line behind this thread all the same, the poll finds nothing, and
 * one such poll is enough to sleep for ADAPTIVE_POLL_FIRM_REST: of more than a hundred rounds only one is to
 * be as late, since p99 would be that. (Beside an attacker who computes all the time p99 is a
 * quarter by that; where it was 6 rounds, beside one who sends garbage, twice as long. On a quiet
 * machine the median would be half as long again, where a program and the thread that serves it
 * share a processor.) It is not firm while it has several to serve, of whom each wants a processor
 * when the other's poll has it (adaptive_poll_another).
 *
 * One thread's own; nothing here locks or allocates. Times are of one clock that does not go back,
 * in microseconds.
 */
#ifndef RAMP_ADAPTIVE_POLL_H
#define RAMP_ADAPTIVE_POLL_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define ADAPTIVE_POLL_US     50
#define ADAPTIVE_POLL_MISSES 8
#define ADAPTIVE_POLL_REST   64

#define ADAPTIVE_POLL_CROWDED_US   100
#define ADAPTIVE_POLL_CROWDED_REST 8
#define ADAPTIVE_POLL_AGAIN	   1024 /* rounds after which a long yield is the first again */
#define ADAPTIVE_POLL_AGAIN_REST   1024
#define ADAPTIVE_POLL_FIRM	   4096
#define ADAPTIVE_POLL_FIRM_REST	   128
#define ADAPTIVE_POLL_SEVERAL	   64

struct adaptive_poll {
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

static inline void adaptive_poll_is_crowded(struct adaptive_poll *poll)
{
	const struct adaptive_poll was = *poll;

	if (!was.again)
		*poll = (struct adaptive_poll){.rest = ADAPTIVE_POLL_CROWDED_REST,
					       .again = ADAPTIVE_POLL_AGAIN};
	else if (was.may_be_firm && !was.several)
		*poll = (struct adaptive_poll){.firm = ADAPTIVE_POLL_FIRM,
					       .again = ADAPTIVE_POLL_FIRM + ADAPTIVE_POLL_AGAIN};
	else
		*poll = (struct adaptive_poll){.rest = ADAPTIVE_POLL_AGAIN_REST,
					       .again = ADAPTIVE_POLL_AGAIN_REST +
							ADAPTIVE_POLL_AGAIN};
	poll->may_be_firm = was.may_be_firm;
	poll->changed = was.changed;
	poll->several = was.several;
}

/* What happened was somebody else's than what happened before; once, that is the next one. */
static inline void adaptive_poll_another(struct adaptive_poll *poll)
{
	if (poll->changed) {
		poll->several = ADAPTIVE_POLL_SEVERAL;
		poll->firm = 0;
	}
	poll->changed = ADAPTIVE_POLL_SEVERAL;
}

/* There is one again. Where it was crowded for the second time meanwhile it is firm now. */
static inline void adaptive_poll_one_again(struct adaptive_poll *poll)
{
	if (poll->may_be_firm && poll->again > ADAPTIVE_POLL_AGAIN) {
		poll->rest = 0;
		poll->firm = ADAPTIVE_POLL_FIRM;
		poll->again = ADAPTIVE_POLL_FIRM + ADAPTIVE_POLL_AGAIN;
	}
}

/* How long to sleep now: wait_ms, or 0 while polling pays. */
static inline int adaptive_poll_wait_ms(struct adaptive_poll *poll, uint64_t now_us, int wait_ms)
{
	if (poll->yielded_us && now_us >= poll->yielded_us + ADAPTIVE_POLL_CROWDED_US) {
		adaptive_poll_is_crowded(poll);
		return wait_ms;
	}
	poll->yielded_us = 0;
	if (poll->rest == 0 && now_us < poll->until_us) {
		poll->polled_us = now_us;
		return 0;
	}
	if (poll->until_us && poll->rest == 0 &&
	    ++poll->misses >= (poll->firm ? 1 : ADAPTIVE_POLL_MISSES)) {
		poll->misses = 0;
		poll->rest = poll->firm ? ADAPTIVE_POLL_FIRM_REST : ADAPTIVE_POLL_REST;
	}
	poll->until_us = 0;
	return wait_ms;
}

/* A wait has found nothing. True: it was a poll, and it is time for the next one. */
static inline bool adaptive_poll_again(struct adaptive_poll *poll)
{
	if (poll->until_us == 0)
		return false;
	if (!poll->firm) {
		poll->yielded_us = poll->polled_us;
		sched_yield();
	}
	return true;
}

/* There was something to do. */
static inline void adaptive_poll_happened(struct adaptive_poll *poll, uint64_t now_us)
{
	poll->again -= poll->again > 0;
	poll->firm -= poll->firm > 0;
	poll->changed -= poll->changed > 0;
	if (poll->several && --poll->several == 0)
		adaptive_poll_one_again(poll);
	poll->rest -= poll->rest > 0;
	if (poll->until_us)
		poll->misses = 0;
	poll->until_us = now_us + ADAPTIVE_POLL_US;
}

#endif
