/*
 * Proposals and linearizable reads of this node, on their way to the leader and back.
 *
 * The happy path: a proposal gets a number, is encoded with its origin, and is proposed here or
 * forwarded to the leader; it is done when an applied entry on this node carries its command id.
 * A read asks the leader for the index that is committed, in rounds (all that came while one was
 * under way go with the next), and is done when this node has applied that much. An answer says
 * what was committed after its question only: the numbers of questions begin at random, so that one
 * to a former life of this node, still on its way, is nobody's.
 *
 * How it fails: a copy that is lost, or was given to somebody who leads no more, is sent again,
 * ever more slowly, and at once to a new leader; the state machine drops what came twice
 * (command.h). After META_PATIENCE_MS it is -ETIMEDOUT if a leader may have it, else -EROFS.
 * At most META_WINDOW numbers are open; more wait here and were not proposed.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "fsm_members.h"
#include "journal_results.h"
#include "meta_impl.h"

#define RETRY_LOCAL_MS	 20
#define RETRY_FORWARD_MS 250

void asks_init(struct asks *asks)
{
	memset(asks, 0, sizeof(*asks));
	asks->open_end = &asks->open;
	asks->waiting_end = &asks->waiting;
	asks->next_number = 1;
	asks->next_ctx = (ramp_random64() >> 1) + 1; /* never 0: that is a free place */
}

static void finish(struct ask *ask, const struct meta_reply *reply)
{
	ask->done(ask->arg, reply);
	free(ask);
}

static void finish_with(struct ask *ask, int result)
{
	struct meta_reply reply = {.result = result};

	finish(ask, &reply);
}

/* Takes *at out of its list, whose end it keeps right. */
static struct ask *unlink_ask(struct ask **at, struct ask ***end)
{
	struct ask *ask = *at;

	*at = ask->next;
	if (*end == &ask->next)
		*end = at;
	ask->next = NULL;
	return ask;
}

static void append(struct ask ***end, struct ask *ask)
{
	ask->next = NULL;
	**end = ask;
	*end = &ask->next;
}

/* ---- proposals: out ------------------------------------------------------------------------ */

static size_t encode(struct meta *meta, const struct ask *ask, uint8_t *buf, size_t cap)
{
	struct meta_origin origin = {.node = meta->opened.self,
				     .life = meta->opened.life,
				     .number = ask->number,
				     .lowest = ask->number};

	if (meta->asks.open && meta->asks.open->number < ask->number)
		origin.lowest = meta->asks.open->number;

	return command_encode(&origin, &ask->command, buf, cap);
}

/*
 * As the leader. A voter's row goes before its place in the configuration, and can't be taken back:
 * where the others are no quorum, the configuration could never follow. The state machine doesn't
 * know who is heard and has a voice, so who proposes looks; it is asked again, and may find more.
 */
static bool may_propose(struct meta *meta, const struct meta_command *c)
{
	return c->type != META_MEMBER_REMOVE || greet_can_spare(meta, c->node);
}

static int propose_bytes(struct meta *meta, const struct meta_command *c, const uint8_t *bytes,
			 size_t len)
{
	struct raft_event ev = {.type = RAFT_EV_PROPOSE};
	int rc;

	if (!may_propose(meta, c))
		return -EAGAIN;
	ev.entry.type = RAFT_COMMAND;
	ev.entry.data = raft_data_make(bytes, len);
	rc = ev.entry.data ? meta_step(meta, &ev) : -EAGAIN;
	raft_data_unref(ev.entry.data);
	return rc;
}

/* Gives a copy to the leader, if there is one. */
static void send_ask(struct meta *meta, struct ask *ask)
{
	uint8_t buf[1 + META_COMMAND_BYTES];
	ramp_node_t leader = replica_raft(meta->replica)->leader;
	size_t len = encode(meta, ask, buf + 1, sizeof(buf) - 1);

	ask->again_ms = meta->now_ms + RETRY_LOCAL_MS;
	if (leader == 0)
		return;
	if (leader == meta->opened.self) {
		if (propose_bytes(meta, &ask->command, buf + 1, len) < 0)
			return;
	} else {
		buf[0] = WIRE_FORWARD;
		meta->config.send(meta->config.arg, leader, buf, len + 1);
	}
	ask->sent = true;
	ask->again_ms = meta->now_ms + ask->pause_ms;
	ask->pause_ms *= 2;
}

/* The state machine's refusal tells a node formatted again what it is. It comes as nobody's: the
   floor of that number (command.h) belongs to the instance that is bound to it. */
static void forward_refusal(struct meta *meta, const struct meta_command *c)
{
	struct meta_origin nobody = {0};
	uint8_t buf[META_COMMAND_BYTES];
	size_t len = command_encode(&nobody, c, buf, sizeof(buf));

	if (c->type == META_NODE_UP && len > 0)
		propose_bytes(meta, c, buf, len);
}

void asks_forwarded(struct meta *meta, ramp_node_t from, bool is_another, const uint8_t *bytes,
		    size_t len)
{
	struct meta_origin origin;
	struct meta_command c;

	/* Nobody proposes in another's name. What can't be proposed now comes again. */
	if (command_decode(bytes, len, &origin, &c) < 0 || origin.node != from)
		return;
	if (is_another)
		forward_refusal(meta, &c);
	else
		propose_bytes(meta, &c, bytes, len);
}

static bool held_already(struct meta *meta, const struct ask *ask, struct meta_reply *reply)
{
	return journal_get_result(replica_journal(meta->replica), ask->command.cid, reply) == 0;
}

static bool is_member_change(const struct ask *ask)
{
	return ask->command.type == META_MEMBER_ADD || ask->command.type == META_MEMBER_PROMOTE ||
	       ask->command.type == META_MEMBER_REMOVE;
}

/* The node that a member's change is about. */
static ramp_node_t subject(const struct ask *ask)
{
	return ask->command.type == META_MEMBER_ADD ? ask->reply.node : ask->command.node;
}

/* True when nothing more is to be waited for: the result is there, and for members the
   configuration. */
static bool complete(struct meta *meta, const struct ask *ask)
{
	if (!ask->applied)
		return false;
	return !is_member_change(ask) || ask->reply.result < 0 ||
	       fsm_member_settled(replica_journal(meta->replica), subject(ask)) == 1;
}

/* The errno of one that has no result. */
static int unanswered(const struct ask *ask)
{
	return ask->sent || ask->applied ? -ETIMEDOUT : -EROFS;
}

void asks_add(struct meta *meta, struct ask *ask)
{
	struct meta_origin nobody = {0};
	uint8_t buf[META_COMMAND_BYTES];

	if (command_encode(&nobody, &ask->command, buf, sizeof(buf)) == 0) {
		finish_with(ask, -EINVAL);
		return;
	}
	ask->deadline_ms = meta->now_ms + META_PATIENCE_MS;
	ask->pause_ms = RETRY_FORWARD_MS;
	ask->sent = ask->command.again;
	ask->applied = held_already(meta, ask, &ask->reply);
	if (complete(meta, ask))
		finish(ask, &ask->reply);
	else if (!ask->applied && meta_forsaken(meta))
		finish_with(ask, unanswered(ask));
	else
		append(&meta->asks.waiting_end, ask);
}

/* Opens what the window has room for. */
static void open_window(struct meta *meta)
{
	struct asks *a = &meta->asks;

	while (!atomic_load(&meta->held) && a->waiting &&
	       (!a->open || a->next_number - a->open->number < META_WINDOW)) {
		struct ask *ask = unlink_ask(&a->waiting, &a->waiting_end);

		ask->number = a->next_number++;
		append(&a->open_end, ask);
		if (!ask->applied)
			send_ask(meta, ask);
	}
}

/* ---- proposals: back ----------------------------------------------------------------------- */

/* Ends what is complete, or late. */
static void end_asks(struct meta *meta, struct ask **list, struct ask ***end)
{
	struct ask **at = list;

	while (*at) {
		struct ask *ask = *at;

		if (complete(meta, ask)) {
			unlink_ask(at, end);
			finish(ask, &ask->reply);
		} else if (meta->now_ms >= ask->deadline_ms) {
			unlink_ask(at, end);
			finish_with(ask, unanswered(ask));
		} else {
			at = &ask->next;
		}
	}
}

/* What asked for this command has its result, and ends where nothing more is to be waited for. */
static void take_result(struct meta *meta, struct ask **at, struct ask ***end,
			const struct fsm_result *result)
{
	while (*at) {
		struct ask *ask = *at;

		if (result->command && ask->command.cid.client == result->cid.client &&
		    ask->command.cid.unique == result->cid.unique) {
			ask->applied = true;
			ask->reply = result->reply;
		}
		if (ask->applied && complete(meta, ask)) {
			unlink_ask(at, end);
			finish(ask, &ask->reply);
		} else {
			at = &ask->next;
		}
	}
}

void asks_applied(struct meta *meta, const struct fsm_result *result)
{
	struct asks *a = &meta->asks;
	bool former = result->command && result->origin.node == meta->opened.self &&
		      result->origin.life != meta->opened.life;

	take_result(meta, &a->open, &a->open_end, result);
	/* One that waits is asked again, and by its turn the result may have made room for others.
	 */
	if (former)
		take_result(meta, &a->waiting, &a->waiting_end, result);
}

void asks_restored(struct meta *meta)
{
	struct ask *ask;

	for (ask = meta->asks.open; ask; ask = ask->next)
		if (!ask->applied)
			ask->applied = held_already(meta, ask, &ask->reply);
	for (ask = meta->asks.waiting; ask; ask = ask->next)
		if (!ask->applied)
			ask->applied = held_already(meta, ask, &ask->reply);
}

/* ---- linearizable reads -------------------------------------------------------------------- */

static void end_syncs(struct sync *list, int result)
{
	struct meta_reply reply = {.result = result};

	while (list) {
		struct sync *s = list;

		list = s->next;
		s->done(s->arg, &reply);
		free(s);
	}
}

void asks_add_sync(struct meta *meta, struct sync *sync)
{
	sync->next = NULL;
	sync->deadline_ms = meta->now_ms + META_PATIENCE_MS;
	if (meta_forsaken(meta)) {
		end_syncs(sync, -EROFS);
		return;
	}
	sync->next = meta->asks.syncs;
	meta->asks.syncs = sync;
}

static void late_syncs(struct meta *meta, struct sync **at)
{
	while (*at) {
		struct sync *s = *at;

		if (meta->now_ms < s->deadline_ms) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		s->next = NULL;
		end_syncs(s, -EROFS);
	}
}

static void ask_round(struct meta *meta)
{
	struct asks *a = &meta->asks;
	struct raft_event ev = {.type = RAFT_EV_READ};
	ramp_node_t leader = replica_raft(meta->replica)->leader;

	a->round_again_ms = meta->now_ms + RETRY_LOCAL_MS;
	a->round_asked = false;
	if (leader == 0)
		return;
	a->round_ctx = ev.ctx = a->next_ctx++;
	if (leader == meta->opened.self) {
		a->round_asked = meta_step(meta, &ev) == 0;
	} else {
		meta_send_small(meta, leader, WIRE_READ, a->round_ctx, 0);
		a->round_asked = true;
	}
	if (a->round_asked)
		a->round_again_ms = meta->now_ms + RETRY_FORWARD_MS;
}

/* Whoever looks now finds it in the tables: the core counts what it gave to be applied, which the
   turn's transaction is still to bring. */
static bool in_the_tables(struct meta *meta, uint64_t index)
{
	struct journal_state s;

	journal_state(replica_journal(meta->replica), &s);
	return s.applied >= index;
}

static void tend_round(struct meta *meta, bool leader_changed)
{
	struct asks *a = &meta->asks;
	struct sync *done;

	if (a->round && a->round_known && in_the_tables(meta, a->round_index)) {
		done = a->round;
		a->round = NULL;
		end_syncs(done, 0);
	}
	if (!a->round && a->syncs) {
		a->round = a->syncs;
		a->syncs = NULL;
		a->round_known = false;
		ask_round(meta);
	} else if (a->round && !a->round_known &&
		   (leader_changed || meta->now_ms >= a->round_again_ms)) {
		ask_round(meta);
	}
}

void asks_read_answer(struct meta *meta, uint64_t ctx, uint64_t index)
{
	struct asks *a = &meta->asks;

	if (!a->round || a->round_known || ctx != a->round_ctx)
		return;
	a->round_known = true;
	a->round_index = index;
}

void asks_read_ready(struct meta *meta, const struct raft_read *read)
{
	struct asks *a = &meta->asks;
	size_t i;

	for (i = 0; i < RAFT_READS_MAX; i++) {
		if (a->served[i].ctx != read->ctx)
			continue;
		a->served[i].ctx = 0;
		if (read->result == 0)
			meta_send_small(meta, a->served[i].from, WIRE_READ_ANSWER,
					a->served[i].theirs, read->index);
		return;
	}
	if (read->result == 0)
		asks_read_answer(meta, read->ctx, read->index);
	else if (read->ctx == a->round_ctx)
		a->round_again_ms = meta->now_ms;
}

void asks_read_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx)
{
	struct asks *a = &meta->asks;
	struct raft_event ev = {.type = RAFT_EV_READ};
	size_t i;

	for (i = 0; i < RAFT_READS_MAX && a->served[i].ctx != 0; i++)
		;
	if (i == RAFT_READS_MAX)
		return; /* it asks again */
	a->served[i].ctx = ev.ctx = a->next_ctx++;
	a->served[i].theirs = ctx;
	a->served[i].from = from;
	if (meta_step(meta, &ev) < 0)
		a->served[i].ctx = 0;
}

/* ---- time ---------------------------------------------------------------------------------- */

void asks_tend(struct meta *meta, bool leader_changed)
{
	struct asks *a = &meta->asks;
	struct ask *ask;

	end_asks(meta, &a->open, &a->open_end);
	end_asks(meta, &a->waiting, &a->waiting_end);
	for (ask = a->open; ask; ask = ask->next) {
		if (leader_changed)
			ask->pause_ms = RETRY_FORWARD_MS;
		if (!ask->applied && (leader_changed || meta->now_ms >= ask->again_ms))
			send_ask(meta, ask);
	}
	open_window(meta);
	late_syncs(meta, &a->syncs);
	late_syncs(meta, &a->round);
	tend_round(meta, leader_changed);
}

void asks_fail_all(struct meta *meta, int result)
{
	struct asks *a = &meta->asks;

	while (a->open)
		finish_with(unlink_ask(&a->open, &a->open_end), result);
	while (a->waiting)
		finish_with(unlink_ask(&a->waiting, &a->waiting_end), result);
	end_syncs(a->syncs, result);
	end_syncs(a->round, result);
	a->syncs = a->round = NULL;
}
