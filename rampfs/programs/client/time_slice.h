/*
 * Short time slices for threads that have page faults (time_slice.c).
 */
#ifndef RAMP_PROGRAMS_TIME_SLICE_H
#define RAMP_PROGRAMS_TIME_SLICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct client;

#define TIME_SLICES_MAX 8u /* most threads of one client whose slice is short */

/* Threads of one client that have page faults. */
struct time_slices {
	pthread_mutex_t lock;
	bool over;	  /* the session is over */
	bool again;	  /* the last scan may have missed some */
	uint64_t next_ms; /* no scan before that */
	struct {
		pid_t tid; /* 0: none */
		uint64_t fault_ms, set_ms;
	} of[TIME_SLICES_MAX];
};

void time_slices_init(struct client *client);
/* Gives threads that have had no page fault for a while their usual slice back. Called each
   second; returns the us that it took. */
uint64_t time_slices_restore(struct client *client);
/* The same for threads that inherited a short slice, or got it from the daemon before. */
void time_slices_inherited(struct client *client);
/* The session is over: the same for all its threads, and none gets a short one from now on. */
void time_slices_over(struct client *client);

#endif
