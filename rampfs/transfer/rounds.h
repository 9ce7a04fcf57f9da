/*
 * What the source of a pre-copy knows of stores, and tells the target (rounds.c). The steps that use it
 * are in source_rounds.c and source_window.c. Where a worker has the move, all is the worker's.
 */
#ifndef RAMP_ROUNDS_H
#define RAMP_ROUNDS_H

#include "move.h"

struct source_rounds {
	uint32_t round; /* that the target reads, or has read */
	uint32_t first; /* round of the request: 0, but for one that joined a prefill */
	/* Pages that this round asks for, and those that were stored into since it was told. */
	struct page_set told, stored;
	/* Of data at the last look; NULL: as in the move, whose list the target has read. */
	struct data_range *ranges;
	uint32_t n_ranges;
	struct seg_layout layout; /* at the last look */
	uint64_t watched_us;	  /* S_WEIGHING: since when; then for how long */
	uint64_t asked_us;	  /* when the round was asked for */
	uint64_t data, pages;	  /* that the first round, and the one before, asked for */
	uint64_t done;		  /* how many of this round the target has */
	uint32_t parts;		  /* STOREDs that name the pages of this round */
	unsigned stuck;		  /* rounds in a row that were not much smaller */
	uint32_t rest_ms;	  /* S_RESTING: the pause before the next look */
	uint64_t look_ms;	  /* ... and when that is */
	uint32_t split;		  /* huge pages, by the last look: the next one finds fewer pages */
	struct page_set
		sample; /* S_WEIGHING: huge pages that are split (sample.c), their first pages */
	uint64_t
		weighed; /* S_WEIGHING: pages that were stored into, by the last look and the sample */
	bool thin; /* mode auto knows how much of huge pages is stored into, and that it is little: each may be split */
	const char *
		all; /* why all pages count by the last look; NULL: those that were stored into do */
	bool watching;
	bool closed; /* to stores: the last look was made, and what follows it is empty */
	bool whole;  /* closed, and the target has every page */
	bool last;   /* rounds_last was called: `stored` is all that the target must read again */
};

/* Begins to watch stores. 0, or the errno of work_err. A worker's call, as are rounds_look and
   rounds_last. */
int rounds_watch(struct move *m);
/* Puts into `stored` what was stored into since rounds_watch or the last look. */
int rounds_look(struct move *m);
/* The same once access is revoked, adding to what the last look has found. */
int rounds_last(struct move *m);
/* Returns how many pages of `stored` the segment has. */
uint64_t rounds_left(struct move *m);
/* Goes on to the next round, which reads what the last look has found: the target will have room for all
   data of that look. */
void rounds_next(struct move *m);
/* Sends the ROUND, after `told` unless the target reads this round already. */
void rounds_send(struct move *m);
/* Says whether a request waits for the rounds, and their limit. */
void rounds_say_prefill(struct move *m);
/* Sends `stored`, and sets TRANSFER's fields by which the target knows that it has all of it. Does
   nothing before rounds_last. */
void rounds_send_last(struct move *m, struct msg_transfer *tr);
/* Opens a segment that is closed to stores, unless it is given; again: does nothing. Blocks shortly. */
void rounds_open(struct move *m);
/* It is given: no program has access any more. */
void rounds_given(struct move *m);
/* Ends the watch; again: does nothing. Blocks shortly. */
void rounds_end(struct move *m);
void rounds_free(struct move *m);

#endif
