/*
 * Short time slices for threads that page fault (time_slice.c).
 */
#ifndef RAMP_PROGRAMS_TIME_SLICE_H
#define RAMP_PROGRAMS_TIME_SLICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct space;

#define TIME_SLICES_MAX 8u /* threads of one client whose slice is short */

/* Threads of one client that page fault. */
struct time_slices {
	pthread_mutex_t lock;
	bool over;	  /* the session is */
	bool again;	  /* the last scan may have missed some */
	uint64_t next_ms; /* no scan before that */
	struct {
		pid_t tid; /* 0: none */
		uint64_t fault_ms, set_ms;
	} of[TIME_SLICES_MAX];
};

void time_slices_init(struct space *client);
/* Of those which have not page faulted for a moment the slice is as it was. Each second; the us
   that it took. */
uint64_t time_slices_restore(struct space *client);
/* The same of threads that inherited a short one, or got it from a former daemon. */
void time_slices_inherited(struct space *client);
/* Of all of them, and nobody gets one any more. */
void time_slices_over(struct space *client);

#endif
