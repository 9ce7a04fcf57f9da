/*
 * Work that several callers share, because what it finds holds for each of them: all that come while one
 * run is under way wait for the next one, which begins after they have come. Any thread.
 */
#ifndef RAMP_PROGRAMS_SHARED_H
#define RAMP_PROGRAMS_SHARED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One run; the first member of its result. */
struct shared_run {
	uint64_t key; /* callers with another key do not share it */
	uint64_t began_us;
	unsigned refs;
	bool done;
};

struct shared {
	void (*run)(struct shared_run *made);
	void (*free)(struct shared_run *run);
	pthread_mutex_t lock; /* protects the rest, and the runs */
	pthread_cond_t changed;
	bool running;
	struct shared_run *next; /* has not begun; NULL: none */
	/* The last one that has ended, with a reference, where callers may take an older one; else NULL. */
	struct shared_run *last;
};
#define SHARED_LOCKS .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER

#define SHARED_NEW UINT64_MAX /* as since_us: a run that begins after the call */

/* Returns a run that began after the call, or at since_us (clock_us) or later, once it is done, with a
   reference. `made`: a run of the caller's, zeroed but for what shared->run needs; it is run on this
   thread, or is not needed, and freed. */
struct shared_run *shared_join(struct shared *shared, struct shared_run *made, uint64_t key,
			       uint64_t since_us);
/* Gives the reference back. */
void shared_put(struct shared *shared, struct shared_run *run);

#endif
