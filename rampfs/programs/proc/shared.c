#include "shared.h"

#include <stddef.h>

#include "base/clock.h"

/* Returns what is to be freed, or NULL. The lock is held. */
static struct shared_run *put_locked(struct shared_run *run)
{
	return run && --run->refs == 0 ? run : NULL;
}

/* Runs it once the one that is under way has ended; it is kept where it `keeps`. Returns the one that was
   kept before, to be freed, or NULL. The lock is held, and released meanwhile. */
static struct shared_run *run_next(struct shared *shared, struct shared_run *made, bool keeps)
{
	struct shared_run *old;

	shared->next = made;
	while (shared->running)
		pthread_cond_wait(&shared->changed, &shared->lock);
	shared->running = true;
	shared->next = NULL;
	made->began_us = clock_us();
	pthread_mutex_unlock(&shared->lock);
	shared->run(made);
	pthread_mutex_lock(&shared->lock);
	shared->running = false;
	made->done = true;
	old = put_locked(shared->last);
	shared->last = keeps ? made : NULL;
	made->refs += keeps;
	pthread_cond_broadcast(&shared->changed);
	return old;
}

/* The lock is held. NULL: none. */
static struct shared_run *find_run(const struct shared *shared, uint64_t key, uint64_t since_us)
{
	struct shared_run *last = shared->last;

	return last && last->key == key && last->began_us >= since_us ? last : shared->next;
}

struct shared_run *shared_join(struct shared *shared, struct shared_run *made, uint64_t key,
			       uint64_t since_us)
{
	struct shared_run *joined, *old = NULL;

	pthread_mutex_lock(&shared->lock);
	while (shared->next && shared->next->key != key) /* of another store: of tests alone */
		pthread_cond_wait(&shared->changed, &shared->lock);
	joined = find_run(shared, key, since_us);
	if (!joined)
		joined = made;
	joined->key = key;
	joined->refs++;
	if (joined == made)
		old = run_next(shared, made, since_us != SHARED_NEW);
	while (!joined->done)
		pthread_cond_wait(&shared->changed, &shared->lock);
	pthread_mutex_unlock(&shared->lock);
	if (joined != made)
		shared->free(made);
	if (old)
		shared->free(old);
	return joined;
}

void shared_put(struct shared *shared, struct shared_run *run)
{
	pthread_mutex_lock(&shared->lock);
	run = put_locked(run);
	pthread_mutex_unlock(&shared->lock);
	if (run)
		shared->free(run);
}
