/*
 * The proposals of this node. See proposals.h.
 *
 * The happy path: a proposal gets a number, is encoded with its origin, and is proposed here or
 * forwarded to the leader. It is done when an applied entry on this node carries its command id.
 *
 * How it fails: a copy that is lost, or was given to a node that leads no more, is sent again, ever
 * more slowly, and at once to a new leader; the state machine drops repeated copies (command.h).
 * After META_PATIENCE_MS the result is -ETIMEDOUT if a leader may have it, else -EROFS. At most
 * META_WINDOW numbers are open; further proposals wait here and were not proposed.
 */
#include "proposals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "fsm_level.h"
#include "fsm_members.h"
#include "journal_results.h"
#include "meta_core.h"
#include "raft.h"

void proposals_init(struct proposals *all)
{
	memset(all, 0, sizeof(*all));
	all->open_end = &all->open;
	all->waiting_end = &all->waiting;
	all->next_number = 1;
}

static void proposal_finish(struct meta_proposal *p, const struct meta_reply *reply)
{
	p->done(p->arg, reply);
	free(p);
}

static void proposal_fail(struct meta_proposal *p, int result)
{
	struct meta_reply reply = {.result = result};

	proposal_finish(p, &reply);
}

/* Takes *at out of its list and keeps the list's end right. */
static struct meta_proposal *proposal_unlink(struct meta_proposal **at, struct meta_proposal ***end)
{
	struct meta_proposal *p = *at;

	*at = p->next;
	if (*end == &p->next)
		*end = at;
	p->next = NULL;
	return p;
}

static void proposal_append(struct meta_proposal ***end, struct meta_proposal *p)
{
	p->next = NULL;
	**end = p;
	*end = &p->next;
}

/* ---- out ------------------------------------------------------------------------ */

static size_t proposal_encode(struct meta *meta, const struct meta_proposal *p, uint8_t *buf,
			      size_t cap)
{
	struct meta_origin origin = {.node = meta_opened(meta)->self,
				     .life = meta_opened(meta)->life,
				     .number = p->number,
				     .lowest = p->number};

	if (meta_proposals(meta)->open && meta_proposals(meta)->open->number < p->number)
		origin.lowest = meta_proposals(meta)->open->number;

	return command_encode(&origin, &p->command, buf, cap);
}

/*
 * Asked by the leader before it proposes. A voter's row is removed before its place in the
 * configuration, and that can't be taken back: where the other voters are no quorum, the
 * configuration could never follow. The state machine doesn't know which nodes answer and may vote,
 * so the leader checks it. The proposal comes again, and may find more of them then.
 */
static bool may_propose(struct meta *meta, const struct meta_command *c)
{
	return (c->type != META_MEMBER_REMOVE && c->type != META_MEMBER_AGAIN) ||
	       admission_can_spare(meta, c->node);
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
static void proposal_send(struct meta *meta, struct meta_proposal *p)
{
	uint8_t buf[1 + META_COMMAND_BYTES];
	ramp_node_t leader = meta_raft(meta)->leader;
	size_t len = proposal_encode(meta, p, buf + 1, sizeof(buf) - 1);

	p->again_ms = meta_now_ms(meta) + META_RETRY_LOCAL_MS;
	if (leader == 0)
		return;
	if (leader == meta_opened(meta)->self) {
		if (propose_bytes(meta, &p->command, buf + 1, len) < 0)
			return;
	} else {
		buf[0] = WIRE_FORWARD;
		meta_send(meta, leader, buf, len + 1);
	}
	p->sent = true;
	p->again_ms = meta_now_ms(meta) + p->pause_ms;
	p->pause_ms *= 2;
}

/* Proposes the NODE_UP of a node that was formatted again: the state machine's refusal tells the
   node so. The command is proposed without an origin, since the floor of that number (command.h)
   belongs to the instance that is bound to it. */
static void forward_refusal(struct meta *meta, const struct meta_command *c)
{
	struct meta_origin no_origin = {0};
	uint8_t buf[META_COMMAND_BYTES];
	size_t len = command_encode(&no_origin, c, buf, sizeof(buf));

	if (c->type == META_NODE_UP && len > 0)
		propose_bytes(meta, c, buf, len);
}

void proposals_forwarded(struct meta *meta, ramp_node_t from, bool is_another, const uint8_t *bytes,
			 size_t len)
{
	struct meta_origin origin;
	struct meta_command c;

	/* No node proposes under another's number. A command that can't be proposed now comes
	   again. */
	if (command_decode(bytes, len, &origin, &c) < 0 || origin.node != from)
		return;
	if (is_another)
		forward_refusal(meta, &c);
	else
		propose_bytes(meta, &c, bytes, len);
}

static bool result_known(struct meta *meta, const struct meta_proposal *p, struct meta_reply *reply)
{
	return journal_get_result(meta_journal(meta), p->command.cid, reply) == 0;
}

static bool is_member_change(const struct meta_proposal *p)
{
	return p->command.type == META_MEMBER_ADD || p->command.type == META_MEMBER_PROMOTE ||
	       p->command.type == META_MEMBER_REMOVE || p->command.type == META_MEMBER_AGAIN;
}

/* Returns the node of a change of membership. */
static ramp_node_t proposal_subject(const struct meta_proposal *p)
{
	return p->command.type == META_MEMBER_ADD ? p->reply.node : p->command.node;
}

/* Returns true when the result is known and, for a change of membership, the configuration is the
   new one. */
static bool proposal_complete(struct meta *meta, const struct meta_proposal *p)
{
	if (!p->applied)
		return false;
	return !is_member_change(p) || p->reply.result < 0 ||
	       fsm_member_settled(meta_journal(meta), proposal_subject(p)) == 1;
}

/* Returns the errno of a proposal without a result. */
static int unanswered(const struct meta_proposal *p)
{
	return p->sent || p->applied ? -ETIMEDOUT : -EROFS;
}

void proposals_add(struct meta *meta, struct meta_proposal *p)
{
	struct meta_origin no_origin = {0};
	uint8_t buf[META_COMMAND_BYTES];
	int rc;

	if (command_encode(&no_origin, &p->command, buf, sizeof(buf)) == 0) {
		proposal_fail(p, -EINVAL);
		return;
	}
	/* A member may run a program that would stop at such a command. */
	rc = fsm_check_level(meta_journal(meta), &p->command);
	if (rc < 0) {
		proposal_fail(p, rc);
		return;
	}
	p->deadline_ms = meta_now_ms(meta) + META_PATIENCE_MS;
	p->pause_ms = META_RETRY_FORWARD_MS;
	p->sent = p->command.again;
	p->applied = result_known(meta, p, &p->reply);
	if (proposal_complete(meta, p))
		proposal_finish(p, &p->reply);
	else if (!p->applied && meta_forsaken(meta))
		proposal_fail(p, unanswered(p));
	else
		proposal_append(&meta_proposals(meta)->waiting_end, p);
}

/* Numbers and sends waiting proposals, as far as the window has room. */
static void open_window(struct meta *meta)
{
	struct proposals *all = meta_proposals(meta);

	while (!atomic_load(&all->held) && all->waiting &&
	       (!all->open || all->next_number - all->open->number < META_WINDOW)) {
		struct meta_proposal *p = proposal_unlink(&all->waiting, &all->waiting_end);

		p->number = all->next_number++;
		proposal_append(&all->open_end, p);
		if (!p->applied)
			proposal_send(meta, p);
	}
}

/* ---- back ----------------------------------------------------------------------- */

/* Ends complete and late proposals of a list. */
static void end_proposals(struct meta *meta, struct meta_proposal **list,
			  struct meta_proposal ***end)
{
	struct meta_proposal **at = list;

	while (*at) {
		struct meta_proposal *p = *at;

		if (proposal_complete(meta, p)) {
			proposal_unlink(at, end);
			proposal_finish(p, &p->reply);
		} else if (meta_now_ms(meta) >= p->deadline_ms) {
			proposal_unlink(at, end);
			proposal_fail(p, unanswered(p));
		} else {
			at = &p->next;
		}
	}
}

/* Gives a result to the list's proposals of that command, and ends those that are complete. */
static void take_result(struct meta *meta, struct meta_proposal **at, struct meta_proposal ***end,
			const struct fsm_result *result)
{
	while (*at) {
		struct meta_proposal *p = *at;

		if (result->command && p->command.cid.client == result->cid.client &&
		    p->command.cid.unique == result->cid.unique) {
			p->applied = true;
			p->reply = result->reply;
		}
		if (p->applied && proposal_complete(meta, p)) {
			proposal_unlink(at, end);
			proposal_finish(p, &p->reply);
		} else {
			at = &p->next;
		}
	}
}

void proposals_applied(struct meta *meta, const struct fsm_result *result)
{
	struct proposals *all = meta_proposals(meta);
	bool earlier_life = result->command && result->origin.node == meta_opened(meta)->self &&
			    result->origin.life != meta_opened(meta)->life;

	take_result(meta, &all->open, &all->open_end, result);
	/* A waiting proposal may be a repeated one: by the time of its number the result may have been
	   displaced by others. */
	if (earlier_life)
		take_result(meta, &all->waiting, &all->waiting_end, result);
}

void proposals_restored(struct meta *meta)
{
	struct meta_proposal *p;

	for (p = meta_proposals(meta)->open; p; p = p->next)
		if (!p->applied)
			p->applied = result_known(meta, p, &p->reply);
	for (p = meta_proposals(meta)->waiting; p; p = p->next)
		if (!p->applied)
			p->applied = result_known(meta, p, &p->reply);
}

void proposals_tend(struct meta *meta, bool leader_changed)
{
	struct proposals *all = meta_proposals(meta);
	struct meta_proposal *p;

	end_proposals(meta, &all->open, &all->open_end);
	end_proposals(meta, &all->waiting, &all->waiting_end);
	for (p = all->open; p; p = p->next) {
		if (leader_changed)
			p->pause_ms = META_RETRY_FORWARD_MS;
		if (!p->applied && (leader_changed || meta_now_ms(meta) >= p->again_ms))
			proposal_send(meta, p);
	}
	open_window(meta);
}

void proposals_fail_all(struct meta *meta, int result)
{
	struct proposals *all = meta_proposals(meta);

	while (all->open)
		proposal_fail(proposal_unlink(&all->open, &all->open_end), result);
	while (all->waiting)
		proposal_fail(proposal_unlink(&all->waiting, &all->waiting_end), result);
}
