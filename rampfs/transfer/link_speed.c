/*
 * How fast the links to other nodes have been.
 *
 * Each round of a pre-copy, and each pull of all pages, is a measurement: the last one counts. Links are
 * taken to be as fast in one direction as in the other.
 */
#include "link_speed.h"

#define ENOUGH_BYTES (UINT64_C(8) << 20) /* less takes as long for other reasons */

void link_note(struct transfers *t, ramp_node_t node, uint64_t bytes, uint64_t us)
{
	size_t at = 0;

	if (bytes < ENOUGH_BYTES || us == 0)
		return;
	while (at < t->n_speeds && t->speeds[at].node != node)
		at++;
	if (at == t->n_speeds && t->n_speeds < LINK_SPEEDS)
		t->n_speeds++;
	if (at == LINK_SPEEDS)
		at = node % LINK_SPEEDS;
	t->speeds[at] = (struct link_speed){node, bytes * 1000000 / us};
}

uint64_t link_speed(const struct transfers *t, ramp_node_t node)
{
	for (size_t i = 0; i < t->n_speeds; i++)
		if (t->speeds[i].node == node)
			return t->speeds[i].bytes_s;
	return 0;
}
