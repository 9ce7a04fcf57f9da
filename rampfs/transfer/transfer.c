/*
 * The life of transfers in a daemon: opening, taking part, hearing of changes, closing.
 *
 * Happy path: NODE_UP is proposed until the tables show our incarnation (R1); then every record in
 * the store and every row that is on the move is looked at once, and again whenever a node's row
 * changes. Events of other threads are posted to the control loop and end in move_look.
 *
 * How it fails: without a quorum NODE_UP is proposed again, and meanwhile nothing new begins;
 * what the records say is served all the same (R8).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "move.h"

struct up {
	struct transfers *t;
	struct meta_reply reply;
};

/* ---- taking part (R1) ------------------------------------------------------------------------ */

static void register_look(struct transfers *t);

static void on_up_timer(uv_timer_t *timer)
{
	register_look(timer->data);
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
			register_look(t);
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
	struct up *p = calloc(1, sizeof(*p));
	struct store_space space;

	if (!p)
		abort();
	store_space(t->store, &space);
	command.cid = meta_own_command(t->meta);
	command.node_inc = t->incarnation;
	command.instance = meta_instance(t->meta);
	command.capacity = space.capacity_bytes;
	memcpy(command.address, row->address, sizeof(command.address));
	p->t = t;
	transfers_get(t);
	t->up_proposing = true;
	meta_propose(t->meta, &command, on_up, p);
}

static void scan(struct transfers *t);

/* A daemon that came after a change of its configuration: the others show what it offers now. */
static bool is_as_shown(const struct transfers *t, const struct node_row *row)
{
	struct store_space space;

	store_space(t->store, &space);
	return row->capacity == space.capacity_bytes;
}

/* Registers until the tables show it; a later fence takes it away again. */
static void register_look(struct transfers *t)
{
	struct node_row row;
	bool was = t->registered;

	if (meta_node(t->meta, t->self, &row)) {
		uv_timer_start(t->up_timer, on_up_timer, 500, 0);
		return;
	}
	t->registered = row.incarnation == t->incarnation && row.fenced != t->incarnation;
	if (t->registered && !was) {
		log_info("node %s takes part", row.name);
		scan(t);
	}
	if (!t->registered && was)
		log_error("node %s was fenced: it takes part no more", row.name);
	if ((!t->registered || !is_as_shown(t, &row)) && !t->up_proposing &&
	    row.fenced != t->incarnation)
		propose_up(t, &row);
}

/* ---- going through all rows ------------------------------------------------------------------ */

struct scan {
	struct transfers *t;
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
	if (row->phase == SEGMENT_MOVING || row->phase == SEGMENT_PULLING)
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
	for (size_t i = 0; i < s->n; i++)
		move_look(t, s->ids[i]);
	free(s->ids);
	free(s);
	if (t->scan_again && !t->closing)
		scan(t);
}

/* Looks at every record and row that is on the move: at the start, and when a node's row says that
   an incarnation may be over. */
static void scan(struct transfers *t)
{
	struct scan *s;

	t->scan_again = t->scanning;
	if (t->scanning)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	s->t = t;
	t->scanning = true;
	t->jobs++;
	loop_work(t->loop, scan_work, scan_done, s);
}

/* ---- wiring ---------------------------------------------------------------------------------- */

static void rows_changed(void *arg)
{
	struct transfers *t = arg;
	ramp_segment_t *ids;
	size_t n;

	pthread_mutex_lock(&t->lock);
	ids = t->changed;
	n = t->n_changed;
	t->changed = NULL;
	t->n_changed = t->cap_changed = 0;
	t->changed_posted = false;
	pthread_mutex_unlock(&t->lock);
	for (size_t i = 0; i < n && t->started && !t->closing; i++) {
		if (ids[i] == 0) {
			register_look(t);
			scan(t);
		} else {
			move_look(t, ids[i]);
			move_requests_look(t, ids[i]);
		}
	}
	free(ids);
	transfers_put(t);
}

void transfers_row_changed(struct transfers *t, ramp_segment_t id)
{
	bool post = false;

	pthread_mutex_lock(&t->lock);
	if (t->n_changed == t->cap_changed) {
		t->cap_changed = t->cap_changed ? t->cap_changed * 2 : 16;
		t->changed = realloc(t->changed, t->cap_changed * sizeof(*t->changed));
		if (!t->changed)
			abort(); /* a change that is missed would hang a migration */
	}
	if (t->n_changed == 0 || t->changed[t->n_changed - 1] != id)
		t->changed[t->n_changed++] = id;
	if (!t->changed_posted)
		post = t->changed_posted = true;
	pthread_mutex_unlock(&t->lock);
	if (post) {
		transfers_get(t);
		loop_post(t->loop, rows_changed, t);
	}
}

struct event {
	struct transfers *t;
	ramp_segment_t id;
	uint64_t lost;
	ramp_node_t node;
	ramp_incarnation_t incarnation;
	bool up;
};

static struct event *event_new(struct transfers *t)
{
	struct event *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	transfers_get(t);
	e->t = t;
	return e;
}

/* Who is up again is told at once what a timer would repeat. Who hung up, or is another now, does
   not come for what he asked to be reserved. */
static void move_peer_changed(struct move *m, const struct event *e)
{
	bool over = e->up && e->incarnation != m->peer_inc;

	if (m->state == T_RESERVING || m->state == T_RESERVED || m->state == T_COPYING) {
		if (over || !e->up)
			target_source_away(m, over);
	} else if (e->up && uv_is_active((uv_handle_t *)&m->timer)) {
		m->backoff_ms = BACKOFF_MIN_MS;
		move_tick(m);
	}
}

static void peer_changed(void *arg)
{
	struct event *e = arg;
	struct transfers *t = e->t;
	struct move *m, *next;

	for (size_t i = 0; i < MOVE_BUCKETS && t->started && !t->closing; i++) {
		for (m = LIST_FIRST(&t->moves[i]); m; m = next) {
			next = LIST_NEXT(m, link);
			if (m->peer == e->node)
				move_peer_changed(m, e);
		}
	}
	if (t->started && !t->closing && e->up)
		move_requests_peer_up(t, e->node);
	else if (t->started && !t->closing)
		move_requests_peer_down(t, e->node);
	free(e);
	transfers_put(t);
}

void transfers_peer_changed(struct transfers *t, ramp_node_t node, ramp_incarnation_t incarnation,
			    bool up)
{
	struct event *e = event_new(t);

	/* Silence proves nothing (R5), and a hello is no committed fact (R1): of these only what
	   may happen at any time follows. */
	e->node = node;
	e->incarnation = incarnation;
	e->up = up;
	loop_post(t->loop, peer_changed, e);
}

static void pull_came(void *arg)
{
	struct event *e = arg;
	struct transfers *t = e->t;
	struct move *m = t->closing ? NULL : move_find(t, e->id);

	if (m)
		target_pulled(m, e->lost);
	free(e);
	transfers_put(t);
}

void transfers_pull_finished(void *transfers, ramp_segment_t id, uint64_t lost)
{
	struct event *e = event_new(transfers);

	e->id = id;
	e->lost = lost;
	loop_post(e->t->loop, pull_came, e);
}

static void free_timer(uv_handle_t *handle)
{
	free(handle);
}

int transfers_open(const struct transfers_config *config, struct transfers **out,
		   struct ramp_err *err)
{
	struct transfers *t = calloc(1, sizeof(*t));

	if (!t)
		return ramp_err_sys(err, ENOMEM, "transfers");
	t->up_timer = calloc(1, sizeof(*t->up_timer));
	if (!t->up_timer) {
		free(t);
		return ramp_err_sys(err, ENOMEM, "transfers");
	}
	t->config = *config;
	t->loop = config->loop;
	t->store = config->store;
	t->meta = config->meta;
	t->peers = config->peers;
	t->programs = config->programs;
	t->self = meta_self(config->meta);
	t->incarnation = store_incarnation(config->store);
	t->serials = ramp_random64() >> 1;
	atomic_init(&t->refs, 1);
	atomic_init(&t->last_handle, ramp_random64() >> 1);
	pthread_mutex_init(&t->lock, NULL);
	STAILQ_INIT(&t->collapses);
	uv_timer_init(loop_uv(t->loop), t->up_timer);
	t->up_timer->data = t;
	source_listen(t);
	target_listen(t);
	move_requests_listen(t);
	traces_listen(t);
	copy_listen(t);
	*out = t;
	return 0;
}

static void start(void *arg)
{
	struct transfers *t = arg;

	if (!t->closing) { /* the mount may have failed meanwhile */
		t->started = true;
		t->started_ms = move_now_ms();
		register_look(t);
		scan(t);
	}
	transfers_put(t);
}

int transfers_start(struct transfers *t, struct pull *pull, struct ramp_err *err)
{
	(void)err;
	t->pull = pull;
	tools_listen(t);
	transfers_get(t);
	loop_post(t->loop, start, t);
	return 0;
}

void transfers_take_no_more(struct transfers *t)
{
	struct move *m;

	t->take_no_more = true;
	for (size_t i = 0; i < MOVE_BUCKETS; i++) {
		LIST_FOREACH (m, &t->moves[i], link) {
			if (m->state >= T_RESERVING && m->state <= T_TAKEN)
				target_prefetch(m);
			else if (m->state == S_LEFT && m->source.row_shows_target)
				given_prefetch_all(m);
		}
	}
}

unsigned transfers_undecided(struct transfers *t, bool cancel)
{
	struct move *m, *next;
	unsigned n = 0;

	for (size_t i = 0; i < MOVE_BUCKETS; i++) {
		for (m = LIST_FIRST(&t->moves[i]); m; m = next) {
			next = LIST_NEXT(m, link);
			if (m->state == ABORTING) {
				n += m->aborting.proof == PROOF_NONE;
			} else if (m->state >= S_PREPARING && m->state <= S_COPYING) {
				n++;
				if (cancel)
					source_cancel(m, EINTR, "its node ends");
			}
		}
	}
	return n;
}

void transfers_close(struct transfers *t)
{
	struct move *m;

	t->closing = true;
	atomic_store(&t->collapse_stop, true); /* programs wait for the next daemon */
	uv_close((uv_handle_t *)t->up_timer, free_timer);
	move_requests_close(t);
	for (size_t i = 0; i < MOVE_BUCKETS; i++)
		LIST_FOREACH (m, &t->moves[i], link)
			atomic_store(&m->cancelled, true); /* R4: a freeze gives back */
	while (t->jobs)
		uv_run(loop_uv(t->loop), UV_RUN_ONCE);
	collapses_close(t);
	traces_close(t);
	for (size_t i = 0; i < MOVE_BUCKETS; i++)
		while ((m = LIST_FIRST(&t->moves[i]))) {
			copy_close(m);
			target_release(m);
			move_drop(m);
		}
}

void transfers_free(struct transfers *t)
{
	transfers_put(t);
}

/* ---- who asks ------------------------------------------------------------------------------- */

static void migrate_posted(void *arg)
{
	struct move_request *req = arg;
	struct transfers *t = move_request_transfers(req);

	move_request_enter(req);
	transfers_put(t);
}

uint64_t transfers_migrate(struct transfers *t, const struct migrate_request *request,
			   migrate_done *done, void *arg)
{
	uint64_t handle = atomic_fetch_add(&t->last_handle, 1) + 1;

	transfers_get(t);
	loop_post(t->loop, migrate_posted, move_request_new(t, request, done, arg, handle));
	return handle;
}

struct cancel {
	struct transfers *t;
	uint64_t handle;
};

static void cancel_posted(void *arg)
{
	struct cancel *c = arg;
	struct transfers *t = c->t;
	struct move_request *req = t->closing ? NULL : move_request_find(t, c->handle);

	if (req)
		move_request_cancel(req);
	free(c);
	transfers_put(t);
}

void transfers_cancel(struct transfers *t, uint64_t handle)
{
	struct cancel *c = calloc(1, sizeof(*c));

	if (!c)
		return; /* a cancel that is lost is one that came too late */
	c->t = t;
	c->handle = handle;
	transfers_get(t);
	loop_post(t->loop, cancel_posted, c);
}

/* ---- what others may see --------------------------------------------------------------------- */

void rolled_back_set(struct transfers *t, ramp_segment_t id, bool on)
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

void transfers_status(struct transfers *t, struct transfers_status *status)
{
	pthread_mutex_lock(&t->lock);
	*status = t->status;
	pthread_mutex_unlock(&t->lock);
}

void transfers_each(struct transfers *t, void (*fn)(void *arg, const struct transfer_row *row),
		    void *arg)
{
	struct move *m;

	for (size_t i = 0; i < MOVE_BUCKETS; i++) {
		LIST_FOREACH (m, &t->moves[i], link) {
			bool target = m->state >= T_RESERVING;
			struct transfer_row row = {
				.id = m->id,
				.from = target ? m->peer : t->self,
				.to = target ? t->self : m->peer,
				.state = move_state_name(m->state),
				.source = !target,
				.age_ms = move_now_ms() - m->since_ms,
			};

			memcpy(row.name, m->name, sizeof(row.name));
			fn(arg, &row);
		}
	}
}
