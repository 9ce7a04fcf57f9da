/*
 * Segments that a receiver has mapped before they are here.
 *
 * Happy path: COMING names the directory of the source, where the segment can be opened already. It
 * is mapped there as one that has left; the daemon puts it in its place when it has come, and says
 * HERE.
 *
 * How it fails: by not being mapped ahead. A segment that does not come after all stays mapped, as
 * one that is on another node, until the watch ends or others take its place.
 */
#include "ahead.h"

#include "segment.h"

bool ahead_has(const struct ahead *ahead, uint64_t id)
{
	for (unsigned i = 0; i < AHEAD_MAX; i++)
		if (ahead->segments[i] && ahead->segments[i]->id == id)
			return true;
	return false;
}

void ahead_map(struct ahead *ahead, struct ramp_cluster *ramp, const struct session_msg *coming)
{
	struct ramp_segment **at = &ahead->segments[ahead->next % AHEAD_MAX], *segment;

	if (ahead_has(ahead, coming->segment) ||
	    segment_map_ahead(ramp, coming->node, coming->text, coming->segment, &segment))
		return;
	ahead->next++;
	ramp_put(*at);
	*at = segment;
}

struct ramp_segment *ahead_take(struct ahead *ahead, uint64_t id)
{
	struct ramp_segment *segment;

	for (unsigned i = 0; i < AHEAD_MAX; i++) {
		segment = ahead->segments[i];
		if (!segment || segment->id != id)
			continue;
		ahead->segments[i] = NULL;
		return segment;
	}
	return NULL;
}

void ahead_free(struct ahead *ahead)
{
	for (unsigned i = 0; i < AHEAD_MAX; i++)
		ramp_put(ahead->segments[i]);
}
