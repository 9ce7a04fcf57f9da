/*
 * Polling for a short time before sleeping, as long as that pays.
 *
 * To wake a sleeping thread costs more than a page (contrib/doc/design.md, "Measured facts"), and
 * polling costs a processor that other threads may want. So a thread that has just had something to
 * do polls for ADAPTIVE_POLL_US more before it sleeps. If that has found nothing
 * ADAPTIVE_POLL_MISSES times in a row, the thread sleeps at once for the next ADAPTIVE_POLL_REST
 * rounds.
 *
 * Between two polls it yields (sched_yield) to threads that wait for this processor: on a small
 * machine that is the very program whose page has just come, or the thread that is to answer.
 * Without the yield a page fault takes a third longer here, and its p99 is the whole of
 * ADAPTIVE_POLL_US. But if another thread wants the processor all the time, a thread that yields
 * gets it back only after a whole time slice, milliseconds, and one that sleeps is woken before
 * that. So a yield that took ADAPTIVE_POLL_CROWDED_US is the last for some rounds, and for many if
 * that happens again within ADAPTIVE_POLL_AGAIN. (A single long yield, which a quiet machine has
 * now and then, costs nothing.)
 *
 * A thread that may be `firm` continues to poll then, at real-time priority, where no other thread
 * can take the processor from it. Its owner makes sure that there is another processor, for the
 * threads that wait for its work. If the other thread is queued behind this thread all the same,
 * the poll finds nothing, and one such poll is enough to sleep for ADAPTIVE_POLL_FIRM_REST: of more
 * than a hundred rounds only one may be that late, since p99 would be that. (Beside an attacker
 * that computes all the time this brings p99 down to a quarter; with a rest of 6 rounds p99 was
 * twice as long beside one that sends garbage. On a quiet machine the median would be half as long
 * again, if a program and the thread that serves it share a processor.) It is not firm while it
 * serves several threads, each of which wants a processor while the poll for the other has it
 * (adaptive_poll_another).
 *
 * A struct adaptive_poll belongs to one thread; nothing here locks or allocates. Times are of one
 * clock that does not go back, in microseconds.
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
	uint64_t yielded_us; /* when the poll that ended in a yield began; 0: no yield */
	uint64_t polled_us;  /* when the last poll began */
	int misses, rest;
	int again;	  /* rounds in which a long yield is not the first */
	int firm;	  /* rounds in which it does not yield */
	int changed;	  /* rounds in which another change means several */
	int several;	  /* rounds in which it must not be firm: it serves several threads */
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

/* Notes that the last event came from another thread than the event before. Once means that the
   thread served is another one now; again, that there are several. */
static inline void adaptive_poll_another(struct adaptive_poll *poll)
{
	if (poll->changed) {
		poll->several = ADAPTIVE_POLL_SEVERAL;
		poll->firm = 0;
	}
	poll->changed = ADAPTIVE_POLL_SEVERAL;
}

/* Notes that it serves only one thread again. If the processor was crowded for the second time
   meanwhile, the poll is firm now. */
static inline void adaptive_poll_one_again(struct adaptive_poll *poll)
{
	if (poll->may_be_firm && poll->again > ADAPTIVE_POLL_AGAIN) {
		poll->rest = 0;
		poll->firm = ADAPTIVE_POLL_FIRM;
		poll->again = ADAPTIVE_POLL_FIRM + ADAPTIVE_POLL_AGAIN;
	}
}

/* Returns how long to sleep now: wait_ms, or 0 while polling pays. */
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

/* Called when a wait has found nothing. True: it was a poll, and it is time for the next one. */
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

/* Called when there was something to do. */
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
