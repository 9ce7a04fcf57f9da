/*
 * Which segments of this node are kept near at another one, and why one is not.
 *
 * Happy path: the row of a segment that this node owns names a node (user.ramp.prefill). A prefill begins
 * (source_prefill.c), and stands until the row names none, or another one, or a request for another move
 * comes. It is in the row, so it goes where the segment goes; at the node that it names there is nothing to do.
 *
 * How it fails: what stands in the way is kept for status, and it is tried again after a pause that grows, or at once
 * when the node is connected again, or the row has changed. Nothing of it is in a record: a daemon that
 * starts begins it by the row.
 */
#include "prefill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/page.h"

#include "collapse.h"
#include "move_request_core.h"
#include "rounds.h"
#include "source.h"
#include "source_mode.h"
#include "source_prefill.h"

#define AGAIN_MIN_MS 1000u
#define AGAIN_MAX_MS 60000u
#define HERE_MS	     200u /* what happens at this node is soon over */

struct prefill {
	LIST_ENTRY(prefill) link;
	struct transfers *t;
	ramp_segment_t id;
	uv_timer_t timer; /* until it is tried again */
	uint32_t again_ms;
	uint16_t mib_s; /* as the row has it */
	bool reached;	/* the target has had all of it, in this attempt */
	/* Protected by t->lock where it is read by others. */
	ramp_node_t node;
	const char *state;
	uint64_t since_ms, again_at_ms, have, behind;
	char why[192];
};

static struct prefill *prefill_find(struct transfers *t, ramp_segment_t id)
{
	struct prefill *p;

	LIST_FOREACH (p, &t->prefills, link)
		if (p->id == id)
			return p;
	return NULL;
}

/* ---- what is shown --------------------------------------------------------------------------- */

/* Returns whether that is news. */
static bool show(struct prefill *p, const char *state, const char *why)
{
	char words[sizeof(p->why)];
	bool news;

	source_mode_words(words, sizeof(words), why);
	pthread_mutex_lock(&p->t->lock);
	news = !p->state || strcmp(p->state, state) != 0 || strcmp(p->why, words) != 0;
	if (news) {
		p->state = state;
		p->since_ms = clock_ms();
		memcpy(p->why, words, sizeof(p->why));
	}
	p->again_at_ms = 0;
	pthread_mutex_unlock(&p->t->lock);
	return news;
}

bool transfers_prefill(struct transfers *t, ramp_segment_t id, struct transfer_prefill *out)
{
	uint64_t now_ms = clock_ms();
	struct prefill *p;

	pthread_mutex_lock(&t->lock);
	p = prefill_find(t, id);
	if (p && p->state) {
		*out = (struct transfer_prefill){.node = p->node,
						 .state = p->state,
						 .have_bytes = p->have,
						 .behind_bytes = p->behind,
						 .since_ms = now_ms - p->since_ms};
		if (p->again_at_ms > now_ms)
			out->again_ms = p->again_at_ms - now_ms;
		memcpy(out->why, p->why, sizeof(out->why));
	}
	pthread_mutex_unlock(&t->lock);
	return p && p->state;
}

void prefill_note(struct move *m)
{
	const struct source_rounds *r = m->source.rounds;
	struct prefill *p = prefill_find(m->t, m->id);
	uint64_t all = page_count(move_populated(m)), left;

	if (!p)
		return;
	left = m->state == S_RESTING || r->done >= r->pages ? 0 : r->pages - r->done;
	p->reached |= m->state == S_RESTING;
	if (p->reached)
		p->again_ms = 0; /* the next failure is not the last one again */
	show(p, p->reached ? "keeping" : "filling", "");
	pthread_mutex_lock(&m->t->lock);
	p->behind = left * RAMP_PAGE_BYTES;
	p->have = all > left ? (all - left) * RAMP_PAGE_BYTES : 0;
	pthread_mutex_unlock(&m->t->lock);
}

/* ---- trying again ---------------------------------------------------------------------------- */

static void prefill_on_timer(uv_timer_t *timer)
{
	struct prefill *p = timer->data;

	prefill_look(p->t, p->id);
}

/* Is not tried for a while, and says why. */
static void wait_for(struct prefill *p, const char *why)
{
	p->reached = false;
	p->again_ms = p->again_ms ? p->again_ms * 2 : AGAIN_MIN_MS;
	if (p->again_ms > AGAIN_MAX_MS)
		p->again_ms = AGAIN_MAX_MS;
	if (show(p, "waiting", why))
		log_info("segment %" PRIu64 ": no prefill now: %s", p->id, why);
	pthread_mutex_lock(&p->t->lock);
	p->have = p->behind = 0;
	p->again_at_ms = clock_ms() + p->again_ms;
	pthread_mutex_unlock(&p->t->lock);
	uv_timer_start(&p->timer, prefill_on_timer, p->again_ms, 0);
}

void prefill_over(struct move *m)
{
	struct prefill *p = prefill_find(m->t, m->id);

	if (p && p->node == m->peer && m->source.fail_code != ESHUTDOWN)
		wait_for(p, m->source.fail_text);
}

/* ---- the row --------------------------------------------------------------------------------- */

static struct prefill *prefill_new(struct transfers *t, ramp_segment_t id)
{
	struct prefill *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->t = t;
	p->id = id;
	uv_timer_init(loop_uv(t->loop), &p->timer);
	p->timer.data = p;
	pthread_mutex_lock(&t->lock);
	LIST_INSERT_HEAD(&t->prefills, p, link);
	pthread_mutex_unlock(&t->lock);
	return p;
}

static void free_prefill(uv_handle_t *timer)
{
	free(timer->data);
}

static void forget(struct prefill *p)
{
	pthread_mutex_lock(&p->t->lock);
	LIST_REMOVE(p, link);
	pthread_mutex_unlock(&p->t->lock);
	uv_close((uv_handle_t *)&p->timer, free_prefill);
}

/* ESHUTDOWN: prefill_over does not count it as a failure. */
static void stop(struct move *m, const char *why)
{
	if (m && m->prefill)
		source_cancel(m, ESHUTDOWN, why);
}

/* Returns whether this node has the segment, and its row names a node to keep near. */
static bool is_wanted(struct transfers *t, ramp_segment_t id, struct segment_row *row)
{
	struct seg *seg = store_find(t->store, id);

	if (!seg)
		return false;
	seg_put(seg);
	return !meta_segment(t->meta, id, row) && row->node == t->self && row->prefill &&
	       !row->unlinked && row->phase != SEGMENT_ORPHAN && !t->take_no_more;
}

static bool is_asked_for(const struct transfers *t, ramp_segment_t id)
{
	const struct move_request *req;

	LIST_FOREACH (req, &t->requests, link)
		if (req->spec.id == id)
			return true;
	return false;
}

/* Returns why it can't begin or stand now; NULL: it can. */
static const char *obstacle(struct transfers *t, const struct segment_row *row)
{
	struct node_row node;

	if (meta_why_copy(t->meta))
		return "this node has no metadata";
	if (!t->registered)
		return "this node does not take part";
	if (meta_node(t->meta, row->prefill, &node) || node.role == NODE_REMOVED)
		return "there is no such node any more";
	if (node.incarnation && node.fenced == node.incarnation)
		return "the node is fenced";
	if (row->mmap == SEGMENT_MMAP_PASSTHROUGH)
		return "user.ramp.mmap is passthrough: such stores can't be watched";
	if (!peer_up(t->peers, row->prefill))
		return "the node is down";
	return NULL;
}

static const char *obstacle_here(struct transfers *t, const struct segment_row *row)
{
	if (row->phase != SEGMENT_STABLE || move_find(t, row->id) || is_asked_for(t, row->id))
		return "it is on the move";
	if (collapse_is_due(t, row->id))
		return "it has just come, and its huge pages are being made";
	return NULL;
}

static void begin(struct prefill *p, const struct segment_row *row)
{
	struct transfers *t = p->t;
	struct seg *seg = store_find(t->store, row->id);
	struct record record;

	if (seg)
		record_get(seg, &record);
	if (!seg || seg_damaged(seg) || record.kind != RECORD_OWNED) {
		if (seg)
			seg_put(seg);
		wait_for(p, "its bytes are not here");
		return;
	}
	p->reached = false;
	show(p, "filling", "");
	source_prefill_begin(t, row, seg);
}

/* Takes over what the row says. May end the move. */
static void take_row(struct prefill *p, const struct segment_row *row, struct move *m)
{
	bool other = p->node != row->prefill;

	if (!other && p->mib_s == row->prefill_mib_s)
		return;
	pthread_mutex_lock(&p->t->lock);
	p->node = row->prefill;
	pthread_mutex_unlock(&p->t->lock);
	p->mib_s = row->prefill_mib_s;
	if (other) {
		stop(m, "another node is to be kept near");
	} else if (m && m->prefill && !m->working) {
		source_prefill_bound(m, row);
		if (m->source.rounds)
			rounds_say_prefill(m);
	} else {
		stop(m, "it has another limit");
	}
	p->again_ms = 0;
	uv_timer_stop(&p->timer);
}

/* The reason passes by an event of its own, but for a request's end and huge pages. */
static void wait_here(struct prefill *p, const char *why)
{
	show(p, "waiting", why);
	uv_timer_start(&p->timer, prefill_on_timer, HERE_MS, 0);
}

void prefill_look(struct transfers *t, ramp_segment_t id)
{
	struct prefill *p = prefill_find(t, id);
	struct move *m = move_find(t, id);
	struct segment_row row;
	const char *why;

	if (t->closing || !t->started)
		return;
	if (!is_wanted(t, id, &row)) {
		if (p)
			forget(p);
		stop(m, "no node is to be kept near");
		return;
	}
	if (!p)
		p = prefill_new(t, id);
	if (!p)
		return;
	take_row(p, &row, m);
	m = move_find(t, id);
	if (row.prefill == t->self) {
		show(p, "here", "");
		return;
	}
	why = obstacle(t, &row);
	if (m && m->prefill) {
		if (why && peer_up(t->peers, row.prefill)) /* else it may come back in time */
			source_cancel(m, EBUSY, why);
	} else if (!uv_is_active((uv_handle_t *)&p->timer)) {
		if (why)
			wait_for(p, why);
		else if ((why = obstacle_here(t, &row)))
			wait_here(p, why);
		else
			begin(p, &row);
	}
}

void prefills_try(struct transfers *t, ramp_node_t node)
{
	struct prefill *p, *next;

	for (p = LIST_FIRST(&t->prefills); p; p = next) {
		next = LIST_NEXT(p, link);
		if (node && p->node != node)
			continue;
		uv_timer_stop(&p->timer);
		prefill_look(t, p->id);
	}
}

void prefills_end(struct transfers *t)
{
	struct prefill *p, *next;

	for (p = LIST_FIRST(&t->prefills); p; p = next) {
		next = LIST_NEXT(p, link);
		prefill_look(t, p->id); /* take_no_more is set */
	}
}

void prefills_close(struct transfers *t)
{
	while (!LIST_EMPTY(&t->prefills))
		forget(LIST_FIRST(&t->prefills));
}
