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
	unsigned refs;
	bool done;
};

struct shared {
	pthread_mutex_t lock; /* protects the rest, and the runs */
	pthread_cond_t changed;
	bool running;
	struct shared_run *next; /* has not begun; NULL: none */
};
#define SHARED_INIT                                                                                \
	{                                                                                          \
		PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, NULL                   \
	}

/* Returns a run that began after this call, once it is done, with a reference. `made`: a run of the
   caller's, zeroed but for what `run` needs; it is `run` on this thread, or not needed: then it is
   `spared`. */
struct shared_run *shared_join(struct shared *shared, struct shared_run *made, uint64_t key,
			       void (*run)(struct shared_run *made),
			       void (*spared)(struct shared_run *made));
/* Gives a reference back. True: that was the last, and the run is the caller's to free. */
bool shared_put(struct shared *shared, struct shared_run *run);

#endif
