/*
 * The ground of transfer.c: references, counters, and reads of the tables.
 */
#include "transfer_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void transfers_get(struct transfers *t)
{
	atomic_fetch_add(&t->refs, 1);
}

void transfers_put(struct transfers *t)
{
	if (atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	pthread_mutex_destroy(&t->lock);
	free(t->changed);
	free(t->rolled_back);
	free(t);
}

void transfers_count(struct transfers *t, uint64_t *counter)
{
	pthread_mutex_lock(&t->lock);
	(*counter)++;
	pthread_mutex_unlock(&t->lock);
}

void transfers_set_rolled_back(struct transfers *t, ramp_segment_t id, bool on)
{
	size_t i;

	pthread_mutex_lock(&t->lock);
	for (i = 0; i < t->n_rolled_back && t->rolled_back[i] != id; i++)
		;
	if (!on && i < t->n_rolled_back) {
		t->rolled_back[i] = t->rolled_back[--t->n_rolled_back];
	} else if (on && i == t->n_rolled_back) {
		ramp_segment_t *grown = realloc(t->rolled_back, (i + 1) * sizeof(*grown));

		if (!grown)
			abort();
		t->rolled_back = grown;
		t->rolled_back[t->n_rolled_back++] = id;
	}
	pthread_mutex_unlock(&t->lock);
}

bool transfers_rolled_back(struct transfers *t, ramp_segment_t id)
{
	bool found = false;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < t->n_rolled_back && !found; i++)
		found = t->rolled_back[i] == id;
	pthread_mutex_unlock(&t->lock);
	return found;
}

struct pair *pair_of(struct transfers *t, ramp_node_t node)
{
	size_t i = 0;

	while (i < PAIRS_MAX - 1 && t->pairs[i].node && t->pairs[i].node != node)
		i++;
	if (!t->pairs[i].node)
		t->pairs[i].node = node;
	return &t->pairs[i];
}

/* ---- reads of the tables --------------------------------------------------------------------- */

bool row_in_attempt(const struct segment_row *row, struct ramp_attempt k)
{
	return (row->phase == SEGMENT_MOVING || row->phase == SEGMENT_PULLING) &&
	       ramp_attempt_equal(row->k, k);
}

bool move_node_over(struct transfers *t, ramp_node_t node, ramp_incarnation_t incarnation)
{
	struct node_row row;

	/* A copy proves nothing. */
	if (meta_why_copy(t->meta) || meta_node(t->meta, node, &row))
		return false;
	return row.incarnation != incarnation || row.fenced == incarnation;
}

void move_node_name(struct transfers *t, ramp_node_t node, char name[RAMP_NODE_NAME_MAX + 1])
{
	struct node_row row;

	if (meta_node(t->meta, node, &row))
		snprintf(name, RAMP_NODE_NAME_MAX + 1, "%u", node);
	else
		memcpy(name, row.name, RAMP_NODE_NAME_MAX + 1);
}
