#include "shared.h"

#include <stddef.h>

/* Runs it once the one that is under way has ended. The lock is held, and released meanwhile. */
static void run_next(struct shared *shared, struct shared_run *made,
		     void (*run)(struct shared_run *made))
{
	shared->next = made;
	while (shared->running)
		pthread_cond_wait(&shared->changed, &shared->lock);
	shared->running = true;
	shared->next = NULL;
	pthread_mutex_unlock(&shared->lock);
	run(made);
	pthread_mutex_lock(&shared->lock);
	shared->running = false;
	made->done = true;
	pthread_cond_broadcast(&shared->changed);
}

struct shared_run *shared_join(struct shared *shared, struct shared_run *made, uint64_t key,
			       void (*run)(struct shared_run *made),
			       void (*spared)(struct shared_run *made))
{
	struct shared_run *joined;

	pthread_mutex_lock(&shared->lock);
	while (shared->next && shared->next->key != key) /* of another store: of tests alone */
		pthread_cond_wait(&shared->changed, &shared->lock);
	joined = shared->next ? shared->next : made;
	joined->key = key;
	joined->refs++;
	if (joined == made)
		run_next(shared, made, run);
	while (!joined->done)
		pthread_cond_wait(&shared->changed, &shared->lock);
	pthread_mutex_unlock(&shared->lock);
	if (joined != made)
		spared(made);
	return joined;
}

bool shared_put(struct shared *shared, struct shared_run *run)
{
	bool last;

	pthread_mutex_lock(&shared->lock);
	last = --run->refs == 0;
	pthread_mutex_unlock(&shared->lock);
	return last;
}
