/*
 * Raising the level of the rules. See levels.h.
 *
 * How it fails: what is lost is said again. A proposal that fails is made again, as long as all
 * members say so.
 */
#include "levels.h"

#include <stdlib.h>

#include "base/log.h"
#include "fsm_level.h"
#include "journal_nodes.h"
#include "meta_core.h"
#include "proposals.h"

#define LEVELS_AGAIN_MS 500
#define LEVELS_HOLD_MS	2000 /* as long counts the word of a member, and its last message */

/* Returns the place of a node; NULL: it has none. */
static struct level_word *find_word(struct levels *l, ramp_node_t node)
{
	for (size_t i = 0; i < RAFT_NODES_MAX; i++)
		if (l->of[i].node == node)
			return &l->of[i];
	return NULL;
}

void levels_heard(struct meta *meta, ramp_node_t from)
{
	struct levels *l = meta_levels(meta);
	struct level_word *w;

	if (l->read && l->now >= META_LEVEL_KNOWN)
		return;
	w = find_word(l, from);
	for (size_t i = 0; !w && i < RAFT_NODES_MAX; i++) {
		struct level_word *o = &l->of[i];

		if (o->node == 0 || meta_now_ms(meta) >= o->heard_ms + LEVELS_HOLD_MS) {
			*o = (struct level_word){.node = from};
			w = o;
		}
	}
	if (w)
		w->heard_ms = meta_now_ms(meta);
}

void levels_said(struct meta *meta, ramp_node_t from, uint64_t level)
{
	struct levels *l = meta_levels(meta);
	struct level_word *w = find_word(l, from);

	if (!w)
		return; /* it is said again */
	w->level = level;
	w->until_ms = meta_now_ms(meta) + LEVELS_HOLD_MS;
	l->again_ms = 0; /* it may be the last one that was waited for */
}

/* Returns the level up to which a member holds nothing up; 0: it is silent. */
static uint64_t level_of(struct meta *meta, const struct node_row *row)
{
	struct levels *l = meta_levels(meta);
	const struct level_word *w = find_word(l, row->node);
	uint64_t now_ms = meta_now_ms(meta);
	bool absent = row->incarnation == 0 || row->fenced == row->incarnation;
	bool heard = w && now_ms < w->heard_ms + LEVELS_HOLD_MS;

	if (row->role == NODE_REMOVED || row->node == meta_opened(meta)->self)
		return META_LEVEL_KNOWN;
	if (w && now_ms < w->until_ms)
		return w->level;
	if (absent && !heard && now_ms >= l->leads_since_ms + LEVELS_HOLD_MS)
		return META_LEVEL_KNOWN;
	return 0;
}

struct level_scan {
	struct meta *meta;
	uint64_t all_know;
};

static int scan_level(void *arg, const struct node_row *row)
{
	struct level_scan *s = arg;
	uint64_t level = level_of(s->meta, row);

	if (level < s->all_know)
		s->all_know = level;
	return 0;
}

static void level_proposed(void *arg, const struct meta_reply *reply)
{
	struct meta *meta = arg;

	(void)reply;
	meta_levels(meta)->proposing = false;
}

static void propose_level(struct meta *meta)
{
	struct level_scan scan = {.meta = meta, .all_know = META_LEVEL_KNOWN};
	struct meta_proposal *p;

	if (journal_walk_nodes(meta_journal(meta), scan_level, &scan) < 0 ||
	    scan.all_know <= meta_levels(meta)->now)
		return;
	p = calloc(1, sizeof(*p));
	if (!p)
		return; /* the next time */
	p->command = (struct meta_command){
		.cid = meta_own_command(meta), .type = META_LEVEL_UP, .value = scan.all_know};
	p->done = level_proposed;
	p->arg = meta;
	meta_levels(meta)->proposing = true;
	proposals_add(meta, p);
}

void levels_tend(struct meta *meta, bool leader_changed)
{
	struct levels *l = meta_levels(meta);
	ramp_node_t leader = meta_raft(meta)->leader;

	if (!l->read)
		l->read = fsm_level(meta_journal(meta), &l->now) == 0;
	if (leader_changed)
		l->leads_since_ms = meta_now_ms(meta);
	if (!l->read || l->now >= META_LEVEL_KNOWN || l->proposing || leader == 0 ||
	    (!leader_changed && meta_now_ms(meta) < l->again_ms))
		return;
	l->again_ms = meta_now_ms(meta) + LEVELS_AGAIN_MS;
	if (leader == meta_opened(meta)->self)
		propose_level(meta);
	else
		meta_send_small(meta, leader, WIRE_LEVEL, META_LEVEL_KNOWN, 0);
}

void levels_applied(struct meta *meta, const struct fsm_result *result)
{
	struct levels *l = meta_levels(meta);
	uint64_t was = l->now;

	if (result && result->type != META_LEVEL_UP)
		return;
	l->read = fsm_level(meta_journal(meta), &l->now) == 0;
	if (l->now != was)
		log_info("meta: the level of the rules is %llu", (unsigned long long)l->now);
}
