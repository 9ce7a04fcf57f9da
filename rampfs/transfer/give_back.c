/*
 * Giving a segment's addresses back (contrib/doc/design.md, "Addresses given back";
 * tests/model/extent.pml).
 *
 *   NEW -> HOLDING         [giving_begin]   a worker holds attaches here, and looks at programs
 *   HOLDING -> ASKING      [giving_held]    marked beside the bytes; every other member is asked
 *   ASKING -> COMMITTING   [giving_commit]  each has answered that nothing is there, and promised
 *   HOLDING, ASKING, COMMITTING -> END [giving_end]
 *
 * Happy path: nothing lies at the segment's addresses, on any node; UNEXTENT is committed, and the
 * next mapping gets others.
 *
 * How it fails: before COMMITTING nothing has happened, and attaches continue. A member that has
 * something there, is not connected, or does not answer in time: EBUSY, which names it. A row that
 * changed meanwhile (a move) refuses the commit. Where its result is not known, or the daemon is
 * killed, the mark stays: then an attach first has an EXTENT applied, after which UNEXTENT was carried out or
 * never is (programs/attach/attach.c). Promises of other nodes end with the row's epoch.
 */
#include "give_back.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "move.h"
#include "move_message.h"

#define ASK_MS 5000u

enum giving_state { GIVING_NEW, GIVING_HOLDING, GIVING_ASKING, GIVING_COMMITTING, GIVING_END };

struct giving {
	LIST_ENTRY(giving) link; /* of transfers.givings */
	struct transfers *t;
	enum giving_state state;
	uint64_t request; /* its number */
	struct programs_extent extent;
	uid_t owner;	 /* the segment's, whose share of the workers it uses */
	struct seg *seg; /* a reference */
	uv_timer_t timer;
	migrate_done *done;
	void *arg;
	bool held; /* programs_hold_attaches; the worker's */
	int rc;	   /* the worker's, as the next one */
	struct ramp_err err;
	size_t n_silent;
	ramp_node_t silent[CONFIG_NODES_MAX]; /* asked, and not answered yet */
};

static void giving_go(struct giving *g, enum giving_state from, enum giving_state to)
{
	static const char *const names[] = {"new", "holding", "asking", "committing", "end"};

	if (g->state != from || to <= from || (to != from + 1 && to != GIVING_END)) {
		log_error("giving back: no step from %s (expected %s) to %s", names[g->state],
			  names[from], names[to]);
		abort();
	}
	log_debug("segment %llu, giving back: %s -> %s", (unsigned long long)g->extent.id,
		  names[from], names[to]);
	g->state = to;
}

static void giving_free(uv_handle_t *timer)
{
	free(timer->data);
}

/* `text` NULL: that of g->err. */
static void giving_end(struct giving *g, int result, const char *text)
{
	giving_go(g, g->state, GIVING_END);
	LIST_REMOVE(g, link);
	if (g->held)
		programs_release_attaches(g->t->programs, g->extent.id);
	g->done(g->arg, result, text ? text : g->err.text);
	if (g->seg)
		seg_put(g->seg);
	uv_close((uv_handle_t *)&g->timer, giving_free);
}

/* ---- the commit ------------------------------------------------------------------------------ */

struct unextent {
	struct transfers *t;
	uint64_t request;
	int result;
};

static struct giving *giving_find(struct transfers *t, uint64_t request)
{
	struct giving *g;

	LIST_FOREACH (g, &t->givings, link)
		if (g->request == request)
			return g;
	return NULL;
}

static void giving_committed(struct giving *g, int rc)
{
	bool unknown = rc == -ETIMEDOUT || rc == -ESHUTDOWN;

	/* After success the note of its row goes with it (mount/row_note.c). */
	if (rc && !unknown)
		seg_end_giving(g->seg, g->extent.epoch + 1);
	if (rc == 0)
		log_info("segment %llu: its addresses, 0x%llx and %llu bytes, were given back",
			 (unsigned long long)g->extent.id, (unsigned long long)g->extent.addr,
			 (unsigned long long)g->extent.len);
	if (rc == -ESTALE || rc == -EBUSY || rc == -ENODATA)
		giving_end(g, -EBUSY, "it was moved or unlinked meanwhile");
	else if (rc == -EROFS)
		giving_end(g, rc, "no quorum");
	else if (unknown)
		giving_end(g, rc, "no answer from the leader; it may still happen");
	else
		giving_end(g, rc, rc ? strerror(-rc) : "");
}

static void unextent_back(void *arg)
{
	struct unextent *u = arg;
	struct transfers *t = u->t;
	struct giving *g = t->closing ? NULL : giving_find(t, u->request);

	if (g)
		giving_committed(g, u->result);
	free(u);
	transfers_put(t);
}

/* Meta thread. */
static void unextent_done(void *arg, const struct meta_reply *reply)
{
	struct unextent *u = arg;

	u->result = reply->result;
	loop_post(u->t->loop, unextent_back, u);
}

static void giving_commit(struct giving *g)
{
	struct meta_command command = {
		.cid = meta_own_command(g->t->meta),
		.type = META_UNEXTENT,
		.id = g->extent.id,
		.epoch = g->extent.epoch,
		.value = g->extent.addr,
	};
	struct unextent *u = calloc(1, sizeof(*u));

	giving_go(g, GIVING_ASKING, GIVING_COMMITTING);
	uv_timer_stop(&g->timer);
	if (!u) {
		giving_committed(g, -ENOMEM);
		return;
	}
	u->t = g->t;
	u->request = g->request;
	transfers_get(g->t);
	meta_propose(g->t->meta, &command, unextent_done, u);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Before the commit was proposed. */
static void giving_fail(struct giving *g, int code, ramp_node_t node, const char *text)
{
	char name[RAMP_NODE_NAME_MAX + 1];

	move_node_name(g->t, node, name);
	ramp_err_set(&g->err, code, "node %s%s", name, text);
	seg_end_giving(g->seg, g->extent.epoch + 1);
	giving_end(g, -code, NULL);
}

static void giving_late(uv_timer_t *timer)
{
	struct giving *g = timer->data;

	giving_fail(
		g, EBUSY, g->silent[0],
		" does not answer; it must be up, or fenced, since a program there may have the "
		"segment mapped");
}

/* Notes a member whose programs may have it mapped: not one that was never up, nor an incarnation that is
   over (R1). */
static int giving_note_member(void *arg, const struct node_row *row)
{
	struct giving *g = arg;

	if (row->node != g->t->self && row->role != NODE_REMOVED && row->incarnation != 0 &&
	    row->fenced != row->incarnation && g->n_silent < CONFIG_NODES_MAX)
		g->silent[g->n_silent++] = row->node;
	return 0;
}

static void giving_ask(struct giving *g)
{
	struct msg_give_back ask = {
		.request = g->request,
		.id = g->extent.id,
		.epoch = g->extent.epoch,
		.addr = g->extent.addr,
		.len = g->extent.len,
	};
	int rc = meta_each_node(g->t->meta, giving_note_member, g);

	giving_go(g, GIVING_HOLDING, GIVING_ASKING);
	if (rc) {
		giving_fail(g, -rc, g->t->self, ": its metadata can't be read");
		return;
	}
	for (size_t i = 0; i < g->n_silent; i++) {
		if (!peer_up(g->t->peers, g->silent[i])) {
			giving_fail(g, EBUSY, g->silent[i],
				    " is not connected; it must be up, or fenced, since a program "
				    "there may have the segment mapped");
			return;
		}
		MOVE_SEND(g->t, g->silent[i], PROTO_GIVE_BACK, proto_put_give_back, &ask);
	}
	uv_timer_start(&g->timer, giving_late, ASK_MS, 0);
	if (g->n_silent == 0)
		giving_commit(g);
}

static void on_said(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		    struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_give_back_said said;
	char text[PROTO_TEXT_BYTES + 2];
	struct giving *g;

	(void)incarnation;
	if (!move_decoded(body, proto_get_give_back_said(body, &said)))
		return;
	g = t->closing ? NULL : giving_find(t, said.request);
	if (!g || g->state != GIVING_ASKING)
		return;
	if (said.code) {
		snprintf(text, sizeof(text), ": %s", said.text);
		giving_fail(g, (int)said.code, from, text);
		return;
	}
	for (size_t i = 0; i < g->n_silent; i++)
		if (g->silent[i] == from)
			g->silent[i--] = g->silent[--g->n_silent];
	if (g->n_silent == 0)
		giving_commit(g);
}

/* ---- the owner's own look -------------------------------------------------------------------- */

static void giving_work(void *arg)
{
	struct giving *g = arg;
	struct programs *programs = g->t->programs;
	struct record record;

	g->rc = programs_hold_attaches(programs, g->extent.id, &g->err);
	g->held = !g->rc;
	g->rc = g->rc ? g->rc : programs_give_back(programs, &g->extent, &g->err);
	if (g->rc)
		return;
	record_get(g->seg, &record);
	if (record.kind != RECORD_OWNED)
		g->rc = ramp_err_set(&g->err, EBUSY, "it is being moved");
	else if ((g->rc = seg_note_giving(g->seg, g->extent.epoch)))
		ramp_err_sys(&g->err, -g->rc, "a note beside its bytes");
}

static void giving_held(void *arg)
{
	struct giving *g = arg;

	g->t->jobs--;
	if (g->t->closing)
		giving_end(g, -ESHUTDOWN, "the daemon ends");
	else if (g->rc)
		giving_end(g, g->rc, NULL);
	else
		giving_ask(g);
}

/* Fills in the extent. Returns 0, or the errno of g->err. */
static int giving_check(struct giving *g)
{
	struct transfers *t = g->t;
	struct meta_settings settings;
	struct segment_row row;
	int rc = meta_segment(t->meta, g->extent.id, &row);

	rc = rc ? rc : meta_get_settings(t->meta, &settings);
	if (rc)
		return ramp_err_sys(&g->err, -rc, "its row");
	if (row.node != t->self)
		return ramp_err_set(&g->err, EREMOTE, "it is on another node");
	if (!row.extent_len)
		return ramp_err_set(&g->err, ENODATA, "it has no addresses");
	if (row.phase != SEGMENT_STABLE || move_find(t, g->extent.id))
		return ramp_err_set(&g->err, EBUSY, "it is on the move");
	if (settings.level < META_LEVEL_UNEXTENT)
		return ramp_err_set(&g->err, EOPNOTSUPP,
				    "not every member runs a rampfs that knows of it");
	g->seg = store_find(t->store, g->extent.id);
	if (!g->seg || seg_damaged(g->seg))
		return ramp_err_set(&g->err, EIO, "its bytes are lost");
	g->owner = row.uid;
	g->extent.epoch = row.epoch;
	g->extent.addr = row.extent_addr;
	g->extent.len = row.extent_len;
	return 0;
}

static void giving_begin(void *arg)
{
	struct giving *g = arg;
	struct transfers *t = g->t;
	int rc;

	uv_timer_init(loop_uv(t->loop), &g->timer);
	g->timer.data = g;
	LIST_INSERT_HEAD(&t->givings, g, link);
	giving_go(g, GIVING_NEW, GIVING_HOLDING);
	rc = t->closing || !t->started ? ramp_err_set(&g->err, ESHUTDOWN, "the daemon ends")
				       : giving_check(g);
	if (rc) {
		giving_end(g, rc, NULL);
	} else {
		t->jobs++;
		loop_work_of(t->loop, g->owner, giving_work, giving_held, g);
	}
	transfers_put(t);
}

void give_back_post(struct transfers *t, ramp_segment_t id, migrate_done *done, void *arg)
{
	struct giving *g = calloc(1, sizeof(*g));

	if (!g)
		abort(); /* a request that is never answered would hang its program */
	g->t = t;
	g->extent.id = id;
	g->request = ramp_random64() | 1;
	g->done = done;
	g->arg = arg;
	transfers_get(t);
	loop_post(t->loop, giving_begin, g);
}

void give_back_close(struct transfers *t)
{
	struct giving *g;

	while ((g = LIST_FIRST(&t->givings)))
		giving_end(g, -ESHUTDOWN, "the daemon ends");
}

/* ---- the other nodes ------------------------------------------------------------------------- */

struct asked {
	struct transfers *t;
	ramp_node_t from;
	uint64_t request;
	struct programs_extent extent;
	struct ramp_err err;
};

static void asked_work(void *arg)
{
	struct asked *a = arg;
	struct seg *seg = store_find(a->t->store, a->extent.id);
	struct record record = {.kind = RECORD_NONE};

	if (seg) {
		record_get(seg, &record);
		seg_put(seg);
	}
	if (record_serves(&record))
		ramp_err_set(&a->err, EBUSY, "it has come here");
	else
		programs_give_back(a->t->programs, &a->extent, &a->err);
}

static void asked_done(void *arg)
{
	struct asked *a = arg;
	struct transfers *t = a->t;
	struct msg_give_back_said said = {.request = a->request, .code = (uint32_t)a->err.code};

	t->jobs--;
	snprintf(said.text, sizeof(said.text), "%s", a->err.text);
	if (!t->closing)
		MOVE_SEND(t, a->from, PROTO_GIVE_BACK_SAID, proto_put_give_back_said, &said);
	free(a);
}

static void on_ask(void *arg, ramp_node_t from, ramp_incarnation_t incarnation, struct wire_r *body)
{
	struct transfers *t = arg;
	struct segment_row row;
	struct msg_give_back ask;
	struct asked *a;

	(void)incarnation;
	if (!move_decoded(body, proto_get_give_back(body, &ask)) || !t->started || t->closing)
		return;
	a = calloc(1, sizeof(*a));
	if (!a)
		return; /* silent */
	*a = (struct asked){.t = t,
			    .from = from,
			    .request = ask.request,
			    .extent = {ask.id, ask.epoch, ask.addr, ask.len}};
	t->jobs++;
	loop_work_of(t->loop, meta_segment(t->meta, ask.id, &row) ? 0 : row.uid, asked_work,
		     asked_done, a);
}

void give_back_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_GIVE_BACK, on_ask, t);
	peers_on(t->peers, PROTO_GIVE_BACK_SAID, on_said, t);
}
