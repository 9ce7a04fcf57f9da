/*
 * Taking part (R1), and the scan of all records and rows that are on the move.
 *
 * Happy path: NODE_UP is proposed until the tables show our incarnation. Then each record in the
 * store and each row that is on the move is looked at once, and again whenever a node's row
 * changes.
 *
 * How it fails: without a quorum NODE_UP is proposed again, and meanwhile nothing new begins;
 * records are served all the same (R8).
 */
#include "registration.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#include "move.h"

/* ---- taking part (R1) ------------------------------------------------------------------------ */

struct up {
	struct transfers *t;
	struct meta_reply reply;
};

static void on_up_timer(uv_timer_t *timer)
{
	registration_look(timer->data);
}

static void up_back(void *arg)
{
	struct up *p = arg;
	struct transfers *t = p->t;

	t->up_proposing = false;
	if (!t->closing) {
		if (p->reply.result == -EPERM)
			log_error("the cluster does not let this node take part: its incarnation "
				  "was fenced, or its state directory is another's");
		if (p->reply.result)
			uv_timer_start(t->up_timer, on_up_timer,
				       p->reply.result == -EPERM ? 10000 : 500, 0);
		else
			registration_look(t);
	}
	free(p);
	transfers_put(t);
}

static void on_up(void *arg, const struct meta_reply *reply)
{
	struct up *p = arg;

	p->reply = *reply;
	loop_post(p->t->loop, up_back, p);
}

static void propose_up(struct transfers *t, const struct node_row *row)
{
	struct meta_command command = {.type = META_NODE_UP, .node = t->self};
	struct node_row wanted = *row;
	struct up *p = calloc(1, sizeof(*p));
	struct store_space space;

	if (!p)
		abort();
	store_space(t->store, &space);
	command.cid = meta_own_command(t->meta);
	command.node_inc = t->incarnation;
	command.instance = meta_instance(t->meta);
	command.capacity = space.capacity_bytes;
	meta_overrule_address(t->meta, &wanted);
	memcpy(command.address, wanted.address, sizeof(command.address));
	p->t = t;
	transfers_get(t);
	t->up_proposing = true;
	meta_propose(t->meta, &command, on_up, p);
}

/* Returns whether the row has this node's capacity and address: a changed configuration may have
   changed the one, and the operator the other, offline. */
static bool is_as_shown(const struct transfers *t, const struct node_row *row)
{
	struct node_row wanted = *row;
	struct store_space space;

	store_space(t->store, &space);
	meta_overrule_address(t->meta, &wanted);
	return row->capacity == space.capacity_bytes && strcmp(row->address, wanted.address) == 0;
}

void registration_look(struct transfers *t)
{
	struct node_row row;
	bool was = t->registered;

	if (meta_node(t->meta, t->self, &row)) {
		uv_timer_start(t->up_timer, on_up_timer, 500, 0);
		return;
	}
	t->registered = row.incarnation == t->incarnation && row.fenced != t->incarnation;
	if (t->registered && !was) {
		if (!meta_why_copy(t->meta))
			log_info("node %s takes part", row.name);
		registration_scan(t);
	}
	if (!t->registered && was) /* by a later fence */
		log_error("node %s was fenced: it takes part no more", row.name);
	if ((!t->registered || !is_as_shown(t, &row)) && !t->up_proposing &&
	    row.fenced != t->incarnation)
		propose_up(t, &row);
}

/* ---- going through all rows ------------------------------------------------------------------ */

struct scan {
	struct transfers *t;
	ramp_node_t self;
	ramp_segment_t *ids;
	size_t n, cap;
};

static void scan_add(struct scan *s, ramp_segment_t id)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? s->cap * 2 : 64;
		s->ids = realloc(s->ids, s->cap * sizeof(*s->ids));
		if (!s->ids)
			abort();
	}
	s->ids[s->n++] = id;
}

static int scan_row(void *arg, const struct segment_row *row)
{
	const struct scan *s = arg;

	if (row->phase == SEGMENT_MOVING || row->phase == SEGMENT_PULLING ||
	    (row->prefill && row->node == s->self))
		scan_add(arg, row->id);
	return 0;
}

static void scan_seg(void *arg, struct seg *seg)
{
	struct record record;

	record_get(seg, &record);
	if (record.kind == RECORD_GIVEN || record.kind == RECORD_TAKEN)
		scan_add(arg, seg_id(seg));
}

static void scan_work(void *arg)
{
	struct scan *s = arg;

	store_each(s->t->store, scan_seg, s);
	meta_each_segment(s->t->meta, 0, 0, scan_row, s);
}

static void scan_done(void *arg)
{
	struct scan *s = arg;
	struct transfers *t = s->t;

	t->jobs--;
	t->scanning = false;
	for (size_t i = 0; i < s->n; i++) {
		move_look(t, s->ids[i]);
		t->hooks->prefill_look(t, s->ids[i]);
	}
	free(s->ids);
	free(s);
	if (t->scan_again && !t->closing)
		registration_scan(t);
}

void registration_scan(struct transfers *t)
{
	struct scan *s;

	t->scan_again = t->scanning;
	if (t->scanning)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	s->t = t;
	s->self = t->self;
	t->scanning = true;
	t->jobs++;
	loop_work(t->loop, scan_work, scan_done, s);
}
