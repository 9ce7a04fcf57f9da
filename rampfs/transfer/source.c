/*
 * The source's end.
 *
 * Happy path: a worker asks what of the segment is populated and whether it may move; CONNECT is
 * repeated until T says ACCEPT; prepare is committed and seen; one worker call freezes, revokes,
 * records GIVEN and sends TRANSFER, with no hop between; TAKEN comes, programs are told, the
 * asker is answered when the tables show T as the owner; when they show that T has settled, the
 * bytes go.
 *
 * How it fails: before GIVEN by giving up: what was frozen thaws within the same worker call, and
 * a prepare that was committed is aborted (R4). From GIVEN on by T's REFUSED(k), or by proof that
 * T's incarnation is over: abort(k) is proposed, and the segment is served again when the tables
 * show it ours (R5). Nothing else, and no time, takes it back.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel.h"
#include "base/log.h"
#include "move.h"

#define NOT_YET_MIN_MS 4u
#define NOT_YET_MAX_MS 200u
#define LIST_TRIES     3

void source_fail(struct move *m, int code, const char *fmt, ...)
{
	va_list ap;

	m->source.fail_code = code;
	va_start(ap, fmt);
	vsnprintf(m->source.fail_text, sizeof(m->source.fail_text), fmt, ap);
	va_end(ap);
}

static void show_state(struct move *m)
{
	if (m->request)
		move_request_progress(m->request, 0, 0, move_state_name(m->state));
}

/* Answers with what fail_set said and ends; `m` is in a state that has no row. */
static void fail_now(struct move *m)
{
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;

	log_info("segment %" PRIu64 " stays: %s", m->id, m->source.fail_text);
	source_count(m->t, &m->t->status.failed);
	move_answer(m, -m->source.fail_code, m->source.fail_text);
	move_end(m);
	/* R4: an earlier attempt's prepare may have been committed meanwhile, and nobody else would
	   look at that row again. */
	move_look(t, id);
}

static void say_close(struct move *m)
{
	move_say(m->t, m->peer, PROTO_CLOSE, m->id, m->k, m->epoch);
}

/* R4: a prepare was, or may have been, committed: nothing is served differently, but the row must
   move before anybody may try again. */
void source_give_up(struct move *m)
{
	if (!m->aborting.then_again)
		source_count(m->t, &m->t->status.failed);
	log_info("segment %" PRIu64 " stays: %s", m->id, m->source.fail_text);
	say_close(m);
	m->aborting.proof = PROOF_NONE;
	move_go(m, m->state, ABORTING);
	move_look(m->t, m->id);
}

/* ---- S_CHECKING ------------------------------------------------------------------------------ */

/* CONNECT, by whoever has the move. */
static void connect_send(struct move *m)
{
	struct msg_connect c = {
		.id = m->id,
		.source_id = m->k.source_id,
		.epoch = m->row_epoch,
		.size = m->size,
		.slack_bytes = m->slack_bytes,
		.src_inc = m->t->incarnation,
		.demand_only = m->demand_only,
		.progress = m->wants_progress,
		.trace = m->trace != NULL,
		.n_ranges = m->n_ranges,
	};
	struct wire_w w;
	void *buf;

	memcpy(c.name, m->name, sizeof(c.name));
	c.ranges = calloc(m->n_ranges + 1, sizeof(*c.ranges));
	buf = malloc(proto_connect_bytes(&c));
	if (c.ranges && buf) {
		for (uint32_t i = 0; i < m->n_ranges; i++)
			c.ranges[i] = (struct msg_range){m->ranges[i].offset, m->ranges[i].len};
		wire_w_init(&w, buf, proto_connect_bytes(&c));
		proto_put_connect(&w, &c);
		peer_send(m->t->peers, m->peer, PROTO_CONNECT, buf, w.len);
	}
	free(c.ranges);
	free(buf);
}

/* Room for the longest list is a mebibyte, and thousands of segments may be on their way at once. */
static void shrink_ranges(struct move *m)
{
	struct room_range *less = realloc(m->ranges, (m->n_ranges + 1) * sizeof(*less));

	if (less)
		m->ranges = less;
}

/* What it has grown by since its size was read is no part of CONNECT, which T would not understand. At
   the freeze its size is another, and T asks for every page. */
static void forget_growth(struct move *m)
{
	uint64_t end = (m->size + RAMP_PAGE_BYTES - 1) / RAMP_PAGE_BYTES * RAMP_PAGE_BYTES;
	struct room_range *last;

	while (m->n_ranges && m->ranges[m->n_ranges - 1].offset >= end)
		m->n_ranges--;
	last = m->n_ranges ? &m->ranges[m->n_ranges - 1] : NULL;
	if (last && last->len > end - last->offset)
		last->len = end - last->offset;
}

/* T takes a message with a larger size for a malformed one, and hangs up. */
static int check_size(struct move *m, uint64_t size)
{
	if (size > PROTO_SIZE_MAX)
		return ramp_err_set(&m->work_err, EFBIG,
				    "it is larger than what can be moved (4 EiB)");
	return 0;
}

/* Noted before the scan: what changes meanwhile counts as a change, unless it is listed again. */
static int list_data(struct move *m, uint64_t *populated)
{
	int rc, tries = LIST_TRIES;

	do {
		seg_note_layout(m->seg);
		m->size = seg_size(m->seg);
		rc = check_size(m, m->size);
		if (!rc)
			rc = room_populated(m->seg, m->ranges, PROTO_RANGES_MAX, &m->n_ranges,
					    populated, &m->work_err);
	} while (!rc && !seg_layout_is_noted(m->seg, *populated) && --tries);
	if (!tries)
		seg_layout_cut(m->seg);
	return rc;
}

/*
 * May it move, and what of it is populated? CONNECT goes out as soon as the latter is known, so
 * that T takes room while /proc is read here; it is repeated when that has been found well.
 */
static void check_work(struct move *m)
{
	uint64_t populated = 0;

	move_forget_ranges(m);
	m->ranges = calloc(PROTO_RANGES_MAX, sizeof(*m->ranges));
	if (!m->ranges) {
		m->work_rc = ramp_err_sys(&m->work_err, ENOMEM, "list of what is populated");
		return;
	}
	m->work_rc = list_data(m, &populated);
	forget_growth(m);
	shrink_ranges(m);
	m->slack_bytes = room_slack_for(populated);
	if (m->work_rc)
		return;
	trace_step(m->trace, "what is populated is known");
	trace_step(m->trace, "CONNECT goes out");
	connect_send(m);
	m->work_rc = programs_may_move(m->t->programs, m->seg, &m->work_err);
	trace_step(m->trace, "no program is in the way");
}

static void checked(struct move *m)
{
	if (m->work_rc)
		source_fail(m, -m->work_rc, "%s", m->work_err.text);
	else if (atomic_load(&m->cancelled) && !m->source.fail_code)
		source_fail(m, EINTR, "cancelled");
	if (m->source.fail_code) {
		say_close(m);
		fail_now(m);
		return;
	}
	move_go(m, S_CHECKING, S_CONNECTING);
	m->heard_ms = m->since_ms;
	show_state(m);
	m->backoff_ms = CONNECT_AGAIN_MS;
	connect_send(m);
	move_retry(m);
}

/* A new attempt: R2's random id, and the row's epoch that prepare will compare. */
static void begin(struct move *m, enum move_state from, uint64_t row_epoch)
{
	m->k = (struct ramp_attempt){.source_id = ramp_random64()};
	m->epoch = 0;
	m->row_epoch = row_epoch;
	m->source.fail_code = 0;
	m->source.fail_text[0] = 0;
	m->source.not_yet_ms = 0;
	m->aborting.then_again = m->source.got_taken = m->source.got_refused =
		m->source.sent_transfer = m->source.got_in_progress = false;
	m->source.attempts++;
	trace_source(m);
	seg_set_leaving(m->seg, true); /* before it is asked who holds it by passthrough */
	move_go(m, from, S_CHECKING);
	show_state(m);
	move_work(m, check_work, checked);
}

void source_start(struct transfers *t, struct move_request *req, const struct segment_row *row,
		  struct seg *seg)
{
	const struct migrate_request *request = move_request_spec(req);
	struct move *m = move_new(t, row->id, seg);

	if (!m) {
		seg_put(seg);
		move_request_done(req, -ENOMEM, "out of memory");
		return;
	}
	m->request = req;
	m->peer = request->dst;
	move_node_name(t, m->peer, m->peer_name);
	memcpy(m->name, request->dst_name, sizeof(m->name));
	m->demand_only = request->mode == TRANSFER_DEMAND && !request->wait_stable;
	m->source.copy_mode = request->mode == TRANSFER_COPY;
	m->wants_progress = request->progress != NULL;
	source_count(t, &t->status.started);
	begin(m, MOVE_NEW, row->epoch);
}

void source_again(struct move *m, enum move_state from)
{
	struct segment_row row;
	int rc;

	if (atomic_load(&m->cancelled) || m->source.attempts >= ATTEMPTS_MAX ||
	    meta_segment(m->t->meta, m->id, &row) || row.phase != SEGMENT_STABLE ||
	    row.node != m->t->self || row.unlinked) {
		if (!m->source.fail_code)
			source_fail(m, atomic_load(&m->cancelled) ? EINTR : EBUSY,
				    "it changes too fast to be moved");
		fail_now(m);
		return;
	}
	rc = m->request ? move_request_check_name(m->request, &row) : 0;
	if (rc) {
		source_fail(m, -rc, "it has another name by now");
		fail_now(m);
		return;
	}
	if (!m->seg)
		m->seg = store_find(m->t->store, m->id);
	begin(m, from, row.epoch);
}

/* ---- S_CONNECTING ---------------------------------------------------------------------------- */

/* R4: what a daemon before this one proposed was committed first, or what an attempt before had no
   answer for. It is aborted; then who asked for the move has his try. */
static void prepare_late(struct move *m)
{
	struct transfers *t = m->t;
	ramp_segment_t id = m->id;
	struct move_request *req = m->request;

	m->request = NULL;
	source_count(t, &t->status.failed);
	say_close(m);
	move_end(m);
	move_look(t, id); /* before anybody asks: he waits for the abort, and none overtakes him */
	if (req)
		move_request_retry(req);
}

/* T may take its time to say anything, and the row would stay as it is so long. */
void source_connecting_look(struct move *m)
{
	struct segment_row row;

	if (meta_segment(m->t->meta, m->id, &row) == 0 && row.phase == SEGMENT_MOVING)
		prepare_late(m);
}

static void connecting_tick(struct move *m)
{
	uint64_t silent_ms = move_now_ms() - m->heard_ms;
	uint32_t again_ms = move_backoff(&m->backoff_ms);

	if (silent_ms < CONNECT_MS) {
		uint32_t left_ms = CONNECT_MS - (uint32_t)silent_ms;

		connect_send(m);
		move_tick_in(m, again_ms < left_ms ? again_ms : left_ms);
		return;
	}
	if (!m->source.fail_code || m->source.got_in_progress)
		source_fail(m, EHOSTUNREACH, "node %s does not answer", m->peer_name);
	say_close(m);
	fail_now(m);
}

/* R3: prepare carries (epoch, k) and both incarnations (R1). */
static void prepared(struct move *m, const struct meta_reply *reply);

static void source_on_accept(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct transfers *t = arg;
	struct meta_command command = {.type = META_PREPARE};
	struct msg_accept a;
	struct move *m;

	if (!move_heard(body, proto_get_accept(body, &a)))
		return;
	m = move_with(t, a.id, from);
	/* What it begins nobody would end, once we close: the row would stay as it is till the next
	   daemon. */
	if (!m || t->closing || m->state != S_CONNECTING || m->k.source_id != a.source_id ||
	    a.dst_inc != incarnation)
		return;
	trace_step(m->trace, "ACCEPT has come");
	loop_rt_boost(t->loop, WINDOW_MS);
	m->k.ticket = a.ticket;
	m->peer_inc = a.dst_inc;
	command.epoch = m->row_epoch;
	command.node = m->peer;
	command.node_inc = m->peer_inc;
	command.src = t->self;
	command.src_inc = t->incarnation;
	memcpy(command.new_name, m->name, sizeof(command.new_name));
	m->source.fail_code = 0;
	move_go(m, S_CONNECTING, S_PREPARING);
	show_state(m);
	move_propose(m, &command, prepared);
}

static void source_on_refuse(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct msg_refuse r;
	struct move *m;

	(void)incarnation;
	if (!move_heard(body, proto_get_refuse(body, &r)))
		return;
	m = move_with(arg, r.id, from);
	if (!m || m->state != S_CONNECTING || m->k.source_id != r.source_id)
		return;
	source_fail(m, r.code == EAGAIN || r.code == EINPROGRESS ? EBUSY : (int)r.code,
		    "node %s: %s", m->peer_name, r.text);
	/* T is at it, however long that takes: only who asked has a bound then. */
	m->source.got_in_progress = r.code == EINPROGRESS;
	if (m->source.got_in_progress) {
		m->heard_ms = move_now_ms();
		move_tick_in(m, NOT_YET_MAX_MS);
		return;
	}
	if (r.code != EAGAIN) {
		fail_now(m);
		return;
	}
	/* Not yet, says T, because of what is over in a moment; and this is the reason if it is
	   not. */
	m->source.not_yet_ms = m->source.not_yet_ms ? m->source.not_yet_ms * 2 : NOT_YET_MIN_MS;
	if (m->source.not_yet_ms > NOT_YET_MAX_MS)
		m->source.not_yet_ms = NOT_YET_MAX_MS;
	move_tick_in(m, m->source.not_yet_ms);
}

/* ---- S_PREPARING ----------------------------------------------------------------------------- */

static void freeze_work(struct move *m);
static void frozen(struct move *m);

static void prepare_failed(struct move *m, int result)
{
	if (atomic_load(&m->cancelled) && m->source.fail_code) { /* and that is the answer */
		say_close(m);
		fail_now(m);
		return;
	}
	if (result == -EBUSY && !atomic_load(&m->cancelled)) { /* the row is MOVING */
		prepare_late(m);
		return;
	}
	switch (result) {
	case -ESTALE: /* a step of the row came between */
		say_close(m);
		source_again(m, S_PREPARING);
		return;
	case -EEXIST:
		source_fail(m, EEXIST, "node %s has something of that name", m->peer_name);
		break;
	case -EHOSTDOWN:
		source_fail(m, EHOSTUNREACH, "node %s does not take part", m->peer_name);
		break;
	case -EROFS:
	case -ETIMEDOUT: /* if it happens yet, the sweep aborts it (R4) */
		source_fail(m, EROFS, "no quorum: the cluster can't agree on the move now");
		break;
	default:
		source_fail(m, -result, "the cluster refused the move: %s", strerror(-result));
	}
	say_close(m);
	fail_now(m);
}

/* R3: S goes on only if the committed prepare is its own attempt's, in the daemon life that
   proposed it. */
static void prepared(struct move *m, const struct meta_reply *reply)
{
	struct segment_row row;
	int rc = reply->result;

	if (m->state != S_PREPARING)
		return;
	if (rc == 0)
		rc = meta_segment(m->t->meta, m->id, &row);
	if (rc == 0 && !(row.phase == SEGMENT_MOVING && ramp_attempt_equal(row.k, m->k)))
		rc = -ESTALE;
	if (rc) {
		prepare_failed(m, rc);
		return;
	}
	m->epoch = row.k_epoch;
	trace_step(m->trace, "prepare is committed");
	if (atomic_load(&m->cancelled)) {
		if (!m->source.fail_code)
			source_fail(m, EINTR, "cancelled");
		source_give_up(m);
		return;
	}
	move_go(m, S_PREPARING, S_FREEZING);
	move_work(m, freeze_work, frozen);
}

/* ---- S_FREEZING ------------------------------------------------------------------------------ */

/*
 * Everybody is out and nobody has access: is what CONNECT said still true? -ENOSPC: it has grown
 * past the slack that T took. T keeps room for what was listed, whether or not it is still there:
 * where something was cut out, all that is new elsewhere needs some.
 */
static int compare_layout(struct move *m)
{
	uint64_t size = seg_size(m->seg), grown = 0;
	int rc = check_size(m, size);

	if (rc)
		return rc;
	m->unchanged = !seg_layout_changed(m->seg, &grown) && size == m->size;
	m->size = size;
	if (grown <= m->slack_bytes && seg_layout_was_cut(m->seg))
		rc = room_unlisted(m->seg, m->ranges, m->n_ranges, m->slack_bytes, &grown,
				   &m->work_err);
	if (rc)
		return rc;
	if (grown > m->slack_bytes)
		return ramp_err_set(&m->work_err, ENOSPC,
				    "it grew by %" PRIu64 " bytes while it was being moved", grown);
	return 0;
}

static int record_given(struct move *m)
{
	struct record given = {
		.kind = RECORD_GIVEN,
		.epoch = m->epoch,
		.k = m->k,
		.peer = m->peer,
		.peer_inc = m->peer_inc,
		.unchanged = m->unchanged,
		.demand_only = m->demand_only,
		.size = m->size,
	};

	if (atomic_load(&m->cancelled))
		return ramp_err_set(&m->work_err, EINTR, "cancelled");
	return record_change(m->seg, &given, &m->work_err);
}

/* Who reads or writes waits until all is copied, however long that takes. */
static void hold(struct move *m, bool held)
{
	m->source.frozen_for_copy = held;
	seg_set_copying(m->seg, held);
}

void source_undo(struct move *m)
{
	given_ungrant(m);
	programs_restore(m->t->programs, m->seg);
	seg_thaw(m->seg);
	hold(m, false);
}

void source_give(struct move *m)
{
	m->work_rc = record_given(m);
	if (m->work_rc) {
		source_undo(m);
		return;
	}
	hold(m, false);
	trace_step(m->trace, "GIVEN is recorded");
	trace_step(m->trace, "TRANSFER goes out");
	given_send(m, PROTO_TRANSFER);
}

/*
 * What leads to the window, and the window, in one call: gate, revoke, compare, record, message.
 * The grant comes before it (T asks for nothing before it has TRANSFER), and so does the look that
 * spares the revoke one. On failure everything is undone in reverse, the keys first. In mode copy T
 * reads first (copy.c).
 */
static void freeze_and_give(struct move *m)
{
	struct transfers *t = m->t;

	m->work_rc = given_grant(m);
	if (m->work_rc)
		return;
	trace_step(m->trace, "pages may be read under the key");
	m->work_rc = programs_watch(t->programs, m->seg, &m->work_err);
	trace_step(m->trace, "mappings are watched, the window opens");
	if (m->work_rc)
		goto err_after_grant;
	m->source.window_from_us = move_now_us();
	m->work_rc = seg_freeze(m->seg, FREEZE_MS, &m->work_err);
	if (m->work_rc)
		goto err_after_watch;
	trace_step(m->trace, "reads and writes are held");
	m->work_rc = programs_revoke(t->programs, m->seg, REVOKE_MS, &m->work_err);
	if (m->work_rc)
		goto err_after_freeze;
	trace_step(m->trace, "access is revoked");
	m->work_rc = compare_layout(m);
	if (m->work_rc)
		source_undo(m);
	else if (m->source.copy_mode)
		hold(m, true);
	else
		source_give(m);
	return;

err_after_freeze:
	given_ungrant(m);
	programs_restore(t->programs, m->seg);
	seg_thaw(m->seg);
	return;
err_after_watch:
	given_ungrant(m);
	programs_restore(t->programs, m->seg);
	return;
err_after_grant:
	given_ungrant(m);
}

/* Busy programs must not keep us off the processor while they are kept from their memory. */
static void freeze_work(struct move *m)
{
	bool lifted = !kernel_rt_boost(KERNEL_FREEZE_PRIORITY);

	freeze_and_give(m);
	if (lifted)
		kernel_rt_boost(0);
}

void source_given(struct move *m)
{
	if (m->work_rc) {
		/* Another attempt lists what it has grown to. */
		m->aborting.then_again = m->work_rc == -ENOSPC;
		if (!m->source.fail_code)
			source_fail(m, m->work_rc == -ETIMEDOUT ? EBUSY : -m->work_rc, "%s",
				    m->work_err.text);
		source_give_up(m);
		return;
	}
	m->source.sent_transfer = true;
	m->source.fail_code = 0;
	move_go(m, m->state, S_GIVEN);
	move_forget_ranges(m);
	show_state(m);
	if (m->source.got_taken) { /* T was faster than our own loop */
		given_leave(m);
		return;
	}
	move_retry(m);
	given_look(m);
}

static void frozen(struct move *m)
{
	if (m->source.copy_mode && !m->work_rc)
		copy_begin(m);
	else
		source_given(m);
}

/* ---- S_GIVEN, S_LEFT: T's verdicts ----------------------------------------------------------- */

/* The move that a verdict on its attempt is for, before anything else has decided it. */
static struct move *verdict_on(struct transfers *t, ramp_node_t from, struct wire_r *body)
{
	struct msg_verdict v;
	struct move *m;

	if (!move_heard(body, proto_get_verdict(body, &v)))
		return NULL;
	m = move_with(t, v.id, from);
	if (!m || !ramp_attempt_equal(m->k, v.k) ||
	    (m->state != S_FREEZING && m->state != S_COPYING && m->state != S_GIVEN))
		return NULL;
	return m;
}

static void source_on_taken(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			    struct wire_r *body)
{
	struct move *m = verdict_on(arg, from, body);

	(void)incarnation;
	if (!m)
		return;
	trace_step(m->trace, "TAKEN has come, the window is closed");
	given_window(m);
	m->source.got_taken = true;
	if (m->state == S_GIVEN && !m->working)
		given_leave(m);
}

/* It may come before our own tables show it. */
static void source_on_listed(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct transfers *t = arg;
	struct msg_verdict v;
	struct move *m;

	(void)incarnation;
	if (!move_heard(body, proto_get_verdict(body, &v)))
		return;
	m = move_with(t, v.id, from);
	if (!m || !ramp_attempt_equal(m->k, v.k))
		return;
	m->source.got_listed = true;
	move_look(t, m->id);
}

/* R5: T's own word that it never took k and never will. Of the incarnation that was asked: a later
   one knows nothing about what that one did, and proof that it is over decides. */
static void source_on_refused(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			      struct wire_r *body)
{
	struct move *m = verdict_on(arg, from, body);

	if (!m || incarnation != m->peer_inc || m->source.got_taken)
		return;
	m->source.got_refused = true;
	if (m->state == S_COPYING && !m->working) {
		source_fail(m, EIO, "node %s could not copy every page", m->peer_name);
		copy_stop(m);
	}
	if (m->state == S_GIVEN)
		move_look(m->t, m->id);
}

static void source_on_pulled(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			     struct wire_r *body)
{
	struct msg_pulled p;
	struct move *m;

	(void)incarnation;
	if (!move_heard(body, proto_get_pulled(body, &p)))
		return;
	m = move_with(arg, p.id, from);
	if (!m || !ramp_attempt_equal(m->k, p.k))
		return;
	copy_heard(m, p.done_pages);
	if (m->request)
		move_request_progress(m->request, p.done_pages, p.all_pages,
				      m->state == S_COPYING ? "copying" : "pulling");
}

void source_tick(struct move *m)
{
	if (m->working)
		return;
	if (m->state == S_CONNECTING)
		connecting_tick(m);
	else if (m->state == S_COPYING)
		copy_source_tick(m);
	else
		given_tick(m);
}

/* ---- asked from above ------------------------------------------------------------------------ */

bool source_past_return(const struct move *m)
{
	return m->state >= S_GIVEN && m->state <= S_REVERTING;
}

bool source_cancel(struct move *m, int code, const char *text)
{
	switch (m->state) {
	case S_CONNECTING:
		/* A refusal that was only "not yet" says more than a time-out does. */
		if (code == EINTR || !m->source.fail_code)
			source_fail(m, code, "%s", text);
		say_close(m);
		fail_now(m);
		return true;
	case S_CHECKING:
	case S_PREPARING:
	case S_FREEZING:
		/* The worker or the proposal comes back, and then it ends. */
		source_fail(m, code, "%s", text);
		atomic_store(&m->cancelled, true);
		return true;
	case S_COPYING:
		source_fail(m, code, "%s", text);
		if (m->working) /* it comes back as from S_FREEZING */
			atomic_store(&m->cancelled, true);
		else
			copy_stop(m);
		return true;
	case ABORTING:
		if (m->aborting.then_again) {
			source_fail(m, code, "%s", text);
			source_count(m->t, &m->t->status.failed);
		}
		m->aborting.then_again = false;
		return true;
	default:
		return false;
	}
}

void source_listen(struct transfers *t)
{
	peers_on(t->peers, PROTO_ACCEPT, source_on_accept, t);
	peers_on(t->peers, PROTO_REFUSE, source_on_refuse, t);
	peers_on(t->peers, PROTO_TAKEN, source_on_taken, t);
	peers_on(t->peers, PROTO_REFUSED, source_on_refused, t);
	peers_on(t->peers, PROTO_PULLED, source_on_pulled, t);
	peers_on(t->peers, PROTO_LISTED, source_on_listed, t);
}
