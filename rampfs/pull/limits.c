#include "limits.h"

#include <errno.h>
#include <stdlib.h>

#include "base/page.h"

/* Segments that one request moves share its limit: each of them that is being pulled has a reference. */
struct limit_group {
	LIST_ENTRY(limit_group) entry; /* protected by pull->lock */
	uint64_t batch;
	unsigned refs; /* protected by pull->lock */
	struct rate rate;
};

/* pull->lock is held. NULL: no memory. */
static struct limit_group *group_get(struct pull *pull, const struct pull_source *source)
{
	struct limit_group *group;

	LIST_FOREACH (group, &pull->groups, entry)
		if (group->batch == source->batch &&
		    rate_get(&group->rate) == source->limit_bytes_s) {
			group->refs++;
			return group;
		}
	group = calloc(1, sizeof(*group));
	if (!group)
		return NULL;
	group->batch = source->batch;
	group->refs = 1;
	rate_init(&group->rate, source->limit_bytes_s);
	LIST_INSERT_HEAD(&pull->groups, group, entry);
	return group;
}

int limits_open(struct limits *limits, struct pull *pull, const struct pull_source *source)
{
	*limits = (struct limits){.pull = pull, .source = pull_tally_of(pull, source->node)};
	if (!source->limit_bytes_s)
		return 0;
	pthread_mutex_lock(&pull->lock);
	limits->group = group_get(pull, source);
	pthread_mutex_unlock(&pull->lock);
	return limits->group ? 0 : -ENOMEM;
}

void limits_close(struct limits *limits)
{
	struct limit_group *group = limits->group;
	bool last;

	if (!group)
		return;
	limits->group = NULL;
	pthread_mutex_lock(&limits->pull->lock);
	last = --group->refs == 0;
	if (last)
		LIST_REMOVE(group, entry);
	pthread_mutex_unlock(&limits->pull->lock);
	if (!last)
		return;
	rate_destroy(&group->rate);
	free(group);
}

/* Fills `all` with the limits, the group's last. Returns how many. */
static unsigned limits_all(const struct limits *limits, struct rate *all[3])
{
	unsigned n = 0;

	all[n++] = &limits->pull->limit;
	all[n++] = &limits->source->limit;
	if (limits->group)
		all[n++] = &limits->group->rate;
	return n;
}

uint64_t limits_take(const struct limits *limits, uint64_t pages, uint64_t *due_us, bool *by_all)
{
	struct rate *all[3];
	unsigned n = limits_all(limits, all);
	uint64_t now = pull_now_us(), took[3] = {0}, want = pages * RAMP_PAGE_BYTES;

	for (unsigned i = n; i > 0 && want; i--)
		took[i - 1] = want = rate_take(all[i - 1], want, now);
	for (unsigned i = 0; i < n; i++) {
		rate_put_back(all[i], took[i] - (want < took[i] ? want : took[i]));
		if (want)
			continue;
		if (rate_due_us(all[i], now) > *due_us)
			*due_us = rate_due_us(all[i], now);
		*by_all |= i < 2 && took[i] == 0 && rate_due_us(all[i], now) > now;
	}
	return want / RAMP_PAGE_BYTES;
}

void limits_put_back(const struct limits *limits, uint64_t pages)
{
	struct rate *all[3];
	unsigned n = limits_all(limits, all);

	for (unsigned i = 0; i < n; i++)
		rate_put_back(all[i], pages * RAMP_PAGE_BYTES);
}

uint64_t limits_least(const struct limits *limits)
{
	struct rate *all[3];
	unsigned n = limits_all(limits, all);
	uint64_t least = 0, one;

	for (unsigned i = 0; i < n; i++) {
		one = rate_get(all[i]);
		if (one && (!least || one < least))
			least = one;
	}
	return least;
}
