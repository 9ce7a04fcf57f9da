/*
 * The table of exports of the TCP transport. See export.h.
 */
#include "export.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

#define UNEXPORT_MS 250 /* longer than any kernel delays an acknowledgement */

void exports_init(struct exports *exports)
{
	pthread_mutex_init(&exports->lock, NULL);
	pthread_cond_init(&exports->unexported, NULL);
	TAILQ_INIT(&exports->unexports);
}

void exports_free(struct exports *exports)
{
	struct export *export;

	for (size_t i = 0; i < EXPORT_BUCKETS; i++)
		while ((export = LIST_FIRST(&exports->buckets[i]))) {
			LIST_REMOVE(export, link);
			free(export);
		}
	pthread_cond_destroy(&exports->unexported);
	pthread_mutex_destroy(&exports->lock);
}

static unsigned int bucket_of(const struct tp_key *key)
{
	return (unsigned int)(key->segment * UINT64_C(0x9e3779b97f4a7c15) >> 56) % EXPORT_BUCKETS;
}

/* exports->lock held. */
static struct export *find_export(struct exports *exports, const struct tp_key *key)
{
	struct export *export;

	LIST_FOREACH (export, &exports->buckets[bucket_of(key)], link)
		if (tp_key_equal(&export->key, key))
			return export;
	return NULL;
}

int exports_add(struct exports *exports, const struct tp_export *of, struct ramp_err *err)
{
	struct export *export = calloc(1, sizeof(*export));
	bool twice;

	if (!export)
		return ramp_err_sys(err, ENOMEM, "export of segment %llu",
				    (unsigned long long)of->key.segment);
	export->key = of->key;
	export->reader = of->reader;
	export->ops = of->ops;
	export->arg = of->arg;
	pthread_mutex_lock(&exports->lock);
	twice = find_export(exports, &of->key) != NULL;
	if (!twice)
		LIST_INSERT_HEAD(&exports->buckets[bucket_of(&of->key)], export, link);
	pthread_mutex_unlock(&exports->lock);
	if (twice) {
		free(export);
		return ramp_err_set(err, EEXIST, "segment %llu is exported under this key already",
				    (unsigned long long)of->key.segment);
	}
	return 0;
}

void exports_remove(struct exports *exports, const struct tp_key *key, struct unexport *unexport,
		    void (*wake)(void *arg), void *arg)
{
	*unexport = (struct unexport){.deadline_ms = clock_ms() + UNEXPORT_MS};
	pthread_mutex_lock(&exports->lock);
	unexport->export = find_export(exports, key);
	if (unexport->export) {
		LIST_REMOVE(unexport->export, link);
		TAILQ_INSERT_TAIL(&exports->unexports, unexport, link);
		wake(arg);
	}
	pthread_mutex_unlock(&exports->lock);
}

void exports_remove_wait(struct exports *exports, struct unexport *unexport)
{
	pthread_mutex_lock(&exports->lock);
	while (unexport->export && !unexport->done)
		pthread_cond_wait(&exports->unexported, &exports->lock);
	pthread_mutex_unlock(&exports->lock);
	free(unexport->export);
}

struct export *exports_find(struct exports *exports, const struct tp_key *key, ramp_node_t reader)
{
	struct export *export;

	pthread_mutex_lock(&exports->lock);
	export = find_export(exports, key);
	pthread_mutex_unlock(&exports->lock);
	return export && export->reader == reader ? export : NULL;
}

void exports_forget_slot(struct exports *exports, unsigned int slot)
{
	struct unexport *unexport;
	struct export *export;

	pthread_mutex_lock(&exports->lock);
	for (size_t i = 0; i < EXPORT_BUCKETS; i++)
		LIST_FOREACH (export, &exports->buckets[i], link)
			export->ends[slot] = 0;
	TAILQ_FOREACH (unexport, &exports->unexports, link)
		unexport->export->ends[slot] = 0;
	pthread_mutex_unlock(&exports->lock);
}

bool exports_attend(struct exports *exports,
		    bool (*all_left)(void *arg, struct export *export, bool late), void *arg)
{
	struct unexport *unexport, *next;
	uint64_t now;

	pthread_mutex_lock(&exports->lock);
	unexport = TAILQ_FIRST(&exports->unexports);
	pthread_mutex_unlock(&exports->lock);
	if (!unexport)
		return false;
	now = clock_ms();
	/* Other threads only add, at the end; only this one removes. */
	for (; unexport; unexport = next) {
		bool over = all_left(arg, unexport->export, now >= unexport->deadline_ms);

		pthread_mutex_lock(&exports->lock);
		next = TAILQ_NEXT(unexport, link);
		if (over) {
			TAILQ_REMOVE(&exports->unexports, unexport, link);
			unexport->done = true;
			pthread_cond_broadcast(&exports->unexported);
		}
		pthread_mutex_unlock(&exports->lock);
	}
	return true;
}
