/*
 * Pages that have come, and are to be mapped.
 */
#include "pull_impl.h"

bool puller_map(struct puller *puller, const struct mapping *mapping)
{
	struct mapping *at;

	if (puller->n_mappings == MAPPINGS_MAX)
		return false;
	at = &puller->mappings[(puller->first_mapping + puller->n_mappings++) % MAPPINGS_MAX];
	*at = *mapping;
	waiter_hold(&at->waiter);
	trace_get(at->trace);
	return true;
}

bool puller_map_full(const struct puller *puller)
{
	return puller->n_mappings == MAPPINGS_MAX;
}

struct mapping map_queue_next(struct puller *puller)
{
	struct mapping mapping = puller->mappings[puller->first_mapping];

	puller->first_mapping = (puller->first_mapping + 1) % MAPPINGS_MAX;
	puller->n_mappings--;
	return mapping;
}

void map_queue_over(struct mapping *mapping)
{
	waiter_put(&mapping->waiter);
	trace_put(mapping->trace);
}
