/*
 * The amnesia check. See amnesia.h.
 *
 * How it fails: where the mark can't be written, the journal's own error ends the process.
 */
#include "amnesia.h"

#include <stdio.h>

#include "base/wire.h"
#include "journal_nodes.h"
#include "journal_results.h"
#include "meta_core.h"
#include "proposals.h"
#include "raft.h"

/* A committed entry stays in every log in which it was ever durable, whichever node leads. */
void amnesia_note_acked(struct meta *meta)
{
	const struct raft *r = meta_raft(meta);
	uint32_t i, k;

	for (i = 0; r->state == RAFT_LEADER && i < r->n_peers; i++) {
		const struct raft_peer *p = &r->peers[i];
		uint64_t index =
			p->match_index < r->commit_index ? p->match_index : r->commit_index;

		if (p->nonvoting || index == 0)
			continue;
		for (k = 0; k < RAFT_NODES_MAX && meta_amnesia(meta)->acked[k].node != 0; k++)
			if (meta_amnesia(meta)->acked[k].node == p->node)
				break;
		if (k == RAFT_NODES_MAX)
			continue; /* many nodes were added and removed since the start */
		meta_amnesia(meta)->acked[k].node = p->node;
		if (meta_amnesia(meta)->acked[k].index < index)
			meta_amnesia(meta)->acked[k].index = index;
	}
}

static void tell_acked(struct meta *meta, ramp_node_t to, uint64_t instance)
{
	uint32_t k;

	for (k = 0; k < RAFT_NODES_MAX; k++)
		if (meta_amnesia(meta)->acked[k].node == to)
			meta_send_small(meta, to, WIRE_ACKED, instance,
					meta_amnesia(meta)->acked[k].index);
}

void amnesia_tell_life(struct meta *meta, ramp_node_t to)
{
	struct journal *j = meta_journal(meta);
	uint64_t life, lowest;
	struct node_row row;
	struct wire_w w;
	uint8_t buf[25];

	if (journal_get_node(j, to, &row) < 0)
		return;
	tell_acked(meta, to, row.instance);
	if (journal_get_floor(j, to, &life, &lowest) < 0 || life == 0)
		return;
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, WIRE_LIFE);
	wire_put_u64(&w, row.instance);
	wire_put_u64(&w, life);
	wire_put_u64(&w, lowest);
	meta_send(meta, to, buf, w.len);
}

/* Returns true where this node has proposed commands of which its journal knows nothing. A copy
   begins the same life that the original began, and counts its numbers from 1 again. */
static bool is_old_copy(struct meta *meta, uint64_t life, uint64_t lowest)
{
	return life > meta_opened(meta)->life ||
	       (life == meta_opened(meta)->life && lowest >= meta_proposals(meta)->next_number);
}

/* Marks the journal as an old copy and ends the node's work. `seen`: the highest life that the
   cluster knows. `why` continues "is an old copy, ". */
static void stop_as_old_copy(struct meta *meta, uint64_t seen, const char *why)
{
	struct journal *j = meta_journal(meta);
	char text[512];

	if (journal_begin(j, true) < 0 || journal_put_restored(j, seen) < 0 ||
	    journal_commit(j) < 0)
		return; /* the journal has reported the reason */
	snprintf(text, sizeof(text),
		 "journal %s: is an old copy, %s: node %u no longer votes, and needs --rejoin once "
		 "its segments are moved away",
		 meta_journal_path(meta), why, meta_opened(meta)->self);
	meta_fatal(meta, text);
}

void amnesia_found(struct meta *meta)
{
	stop_as_old_copy(meta, meta_opened(meta)->life, "which lacks entries that it acknowledged");
}

void amnesia_life(struct meta *meta, struct wire_r *body)
{
	uint64_t instance = wire_get_u64(body), life = wire_get_u64(body);
	uint64_t lowest = wire_get_u64(body);
	char why[80];

	/* A node that was formatted again is found by its instance. */
	if (!wire_r_done(body) || instance != meta_opened(meta)->instance ||
	    !is_old_copy(meta, life, lowest))
		return;
	snprintf(why, sizeof(why), "of life %llu, and the cluster has seen %llu",
		 (unsigned long long)meta_opened(meta)->life, (unsigned long long)life);
	stop_as_old_copy(meta, life, why);
}

void amnesia_acked(struct meta *meta, uint64_t instance, uint64_t index)
{
	const struct raft *r = meta_raft(meta);

	/* A node that was not admitted has promised nothing. */
	if (r->confirmed && instance == meta_opened(meta)->instance && index > r->last_index)
		amnesia_found(meta);
}
