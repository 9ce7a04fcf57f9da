/*
 * Requests that wait, and the one thread that finishes them.
 *
 * A fuse thread never waits: a request that finds its segment's gate closed, a page remote or a
 * proposal on its way is parked here. Its step runs again on the park thread when something about
 * the segment changed (park_changed), when a result came (park_run), when the request was
 * interrupted, and every PARK_TICK_MS in any case, since a silent source changes nothing.
 *
 * Ownership: a parked request is its caller's until park_wait or park_run, then the park's, until
 * its step returns PARK_DONE (the step has freed it) or park_close drops it. Thread-safety:
 * everything from any thread. Nothing here blocks but park_close.
 */
#ifndef RAMP_PARK_H
#define RAMP_PARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "base/ids.h"

#define PARK_TICK_MS 100

struct park;
struct parked;

enum park_verdict { PARK_DONE, PARK_WAIT };

struct parked {
	TAILQ_ENTRY(parked) link;
	ramp_segment_t id;	 /* of its segment: park_changed of that wakes it */
	uint64_t since_ms;	 /* CLOCK_MONOTONIC, of the first park_wait */
	atomic_bool interrupted; /* once, and for good */
	/* The park's: interrupted, or a worker is free, since the step began its last look. */
	bool woken;
	bool awaits_worker; /* set by the step: park_worker_free wakes it, too */
	/* Tries (again). PARK_DONE: the step has replied and freed it, and the park does not touch
	   it any more. Park thread. */
	enum park_verdict (*step)(struct parked *parked);
	/* Frees it without a reply, since the park has closed. */
	void (*drop)(struct parked *parked);
};

int park_open(struct park **out, struct ramp_err *err);
/* Ends the thread. Parked requests are dropped, and later ones are dropped at once. */
void park_close(struct park *park);
void park_free(struct park *park); /* after park_close, when no caller can come any more */

/* Parks a request. Its step runs soon, once, in case the change has happened already. */
void park_wait(struct park *park, struct parked *parked, ramp_segment_t id);
/* Runs the step on the park thread as soon as it can. */
void park_run(struct park *park, struct parked *parked);
/* Wakes the requests of this segment: something that they wait for may have changed. */
void park_changed(struct park *park, ramp_segment_t id);
/* Wakes only those that wait for a worker: the others would look in vain. */
void park_worker_free(struct park *park, ramp_segment_t id);
/* Returns the number of park_changed so far: taken before a step that another thread runs, for
   park_again. */
uint64_t park_changes(struct park *park, ramp_segment_t id);
/* Parks a request whose step, run by another thread, has returned PARK_WAIT: as if the park thread
   had run it. */
void park_again(struct park *park, struct parked *parked, uint64_t changes);
/* Interrupts a request, which may be parked or not; the caller keeps it from being freed during the
   call. */
void park_interrupt(struct park *park, struct parked *parked);
/* Returns the number of waiting requests, without the one whose step is running. */
uint32_t park_count(struct park *park);

uint64_t park_now_ms(void);

#endif
