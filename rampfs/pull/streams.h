/*
 * How many threads prefetch, each over a connection of its own to each source.
 *
 * One thread takes 3 to 5 GB/s from one connection. More help where the network is faster than that,
 * and where one connection can't fill it: several paths side by side, a long way, a congestion control
 * that paces each connection. They cost processors that programs need, too, and with one source and
 * one target on two processors they help nothing.
 *
 * Called by the first thread that prefetches, but for streams_most. No system calls.
 */
#ifndef RAMP_STREAMS_H
#define RAMP_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

struct streams {
	unsigned most;
	bool fixed; /* as many as that, without measuring */
	unsigned open;
	bool tries;	      /* the last one was opened to see whether it helps */
	uint64_t rate_before; /* bytes a second without it */
	uint64_t try_us;      /* none is opened before that time */
	uint64_t settle_us;   /* nothing is measured before that time */
	/* At the beginning of the time that is measured; since_us 0: it has not begun. */
	uint64_t since_us, bytes, idle_us;
};

/* Of one moment. */
struct streams_sample {
	uint64_t us;
	uint64_t bytes;	  /* that have come until then */
	uint64_t idle_us; /* that all processors together have idled until then */
	bool moves;	  /* something is being prefetched */
};

/* Returns how many there may be; `wanted` is that of struct pull_config. */
unsigned streams_most(unsigned wanted);
void streams_init(struct streams *streams, unsigned wanted);
/* True: a look now may change something. */
bool streams_is_due(const struct streams *streams, uint64_t us, uint64_t bytes, bool moves);
/* Returns how many are to be open from now on. */
unsigned streams_look(struct streams *streams, const struct streams_sample *now);

#endif
