/*
 * Voter admission. See admission.h.
 *
 * The happy path: a founder asks the other members each ADMISSION_AGAIN_MS; as soon as enough of
 * them are fresh, or one has this instance bound, it is confirmed.
 *
 * How it fails: lost questions are asked again. A node that is another instance than the bound one
 * is never confirmed, and logs that it needs --rejoin.
 */
#include "admission.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "command.h"
#include "journal_nodes.h"
#include "meta_core.h"
#include "raft.h"

#define ADMISSION_AGAIN_MS 200
#define ANOTHER_LOG_MS	   60000
#define NONVOTING_MS	   1000 /* since the node's last report */
#define MEMBER_BYTES	   (16 + RAMP_NODE_NAME_MAX + RAMP_ADDRESS_MAX)

/* A receiver ignores flags that it doesn't know. */
enum admission_flag { ADMISSION_FRESH = 1, ADMISSION_ANSWER_ME = 2, ADMISSION_NONVOTING = 4 };

static bool is_fresh(const struct raft *r)
{
	/* Votes and entries of elections have terms above the founders'. */
	return r->term == 1 && r->last_index == 1;
}

static void admission_confirm(struct meta *meta)
{
	struct raft_event ev = {.type = RAFT_EV_CONFIRM};

	if (meta_opened(meta)->restored || meta_admission(meta)->denied)
		return;
	meta_step(meta, &ev);
	log_info("meta: node %u is admitted to vote", meta_opened(meta)->self);
}

static void send_admission(struct meta *meta, ramp_node_t to, bool answer_me)
{
	const struct raft *r = meta_raft(meta);
	struct node_row row;
	uint64_t instance = 0;

	if (journal_get_node(meta_journal(meta), to, &row) == 0)
		instance = row.instance;
	meta_send_small(meta, to, WIRE_ADMISSION,
			(is_fresh(r) ? ADMISSION_FRESH : 0u) |
				(answer_me ? ADMISSION_ANSWER_ME : 0u) |
				(r->confirmed ? 0u : ADMISSION_NONVOTING),
			instance);
}

/* Returns how many voters besides this one must be fresh: as many as any quorum has besides it, and
   so more than could be fresh if a quorum had ever decided anything. */
static uint32_t fresh_needed(const struct raft *r)
{
	uint32_t voters = raft_conf_voters(&r->conf);
	uint32_t quorum = voters / 2 + 1;

	return quorum < voters ? quorum : voters - 1;
}

static void count_fresh(struct meta *meta)
{
	const struct raft *r = meta_raft(meta);
	uint32_t i, n = 0;

	if (!is_fresh(r) || !raft_conf_find(&r->conf, meta_opened(meta)->self))
		return;
	for (i = 0; i < r->conf.n; i++) {
		ramp_node_t node = r->conf.member[i].node;

		n += r->conf.member[i].role == RAFT_VOTER && node != meta_opened(meta)->self &&
		     node <= RAFT_NODES_MAX && meta_admission(meta)->fresh[node];
	}
	if (n >= fresh_needed(r))
		admission_confirm(meta);
}

void admission_tend(struct meta *meta)
{
	const struct raft *r = meta_raft(meta);
	bool hopes = !meta_opened(meta)->restored && !meta_admission(meta)->denied;
	uint32_t i;

	if (r->confirmed || meta_now_ms(meta) < meta_admission(meta)->again_ms)
		return;
	meta_admission(meta)->again_ms = meta_now_ms(meta) + ADMISSION_AGAIN_MS;
	if (hopes)
		count_fresh(meta);
	for (i = 0; !r->confirmed && i < r->conf.n; i++)
		if (r->conf.member[i].node != meta_opened(meta)->self)
			send_admission(meta, r->conf.member[i].node, hopes);
}

/* Notes that a node may not vote. It reports so again and again, until it is admitted. */
static void note_nonvoting(struct meta *meta, ramp_node_t from)
{
	struct nonvoting *at, *place = NULL;
	uint32_t i;

	pthread_mutex_lock(&meta_admission(meta)->lock);
	for (i = 0; i < RAFT_NODES_MAX; i++) {
		at = &meta_admission(meta)->others[i];
		if (at->node == from)
			break;
		if (!place && meta_now_ms(meta) >= at->until_ms)
			place = at;
	}
	if (i == RAFT_NODES_MAX)
		at = place;
	if (at) {
		if (at->node != from || meta_now_ms(meta) >= at->until_ms)
			*at = (struct nonvoting){.node = from, .since_ms = meta_now_ms(meta)};
		at->until_ms = meta_now_ms(meta) + NONVOTING_MS;
	}
	pthread_mutex_unlock(&meta_admission(meta)->lock);
}

/* Returns true if the node may not vote, and could not for the last `for_ms`. */
static bool nonvoting_for(struct meta *meta, ramp_node_t node, uint64_t for_ms)
{
	uint64_t now_ms = meta_clock_ms();
	bool is = false;

	if (node == meta_opened(meta)->self)
		return meta_awaits_admission_for(meta, for_ms);
	pthread_mutex_lock(&meta_admission(meta)->lock);
	for (uint32_t i = 0; i < RAFT_NODES_MAX && !is; i++) {
		const struct nonvoting *n = &meta_admission(meta)->others[i];

		is = n->node == node && now_ms < n->until_ms &&
		     (for_ms == 0 || now_ms >= n->since_ms + for_ms);
	}
	pthread_mutex_unlock(&meta_admission(meta)->lock);
	return is;
}

bool meta_is_nonvoting(struct meta *meta, ramp_node_t node)
{
	return nonvoting_for(meta, node, 0);
}

bool meta_gets_no_vote(struct meta *meta, ramp_node_t node)
{
	return nonvoting_for(meta, node, META_NO_VOTE_MS);
}

bool admission_can_spare(struct meta *meta, ramp_node_t node)
{
	const struct raft *r = meta_raft(meta);
	uint32_t i, n = 0, voters = raft_conf_voters(&r->conf);
	const struct raft_member *m = raft_conf_find(&r->conf, node);

	if (!m || m->role != RAFT_VOTER || voters == 1)
		return true; /* the state machine refuses the last one */
	if (node != meta_opened(meta)->self)
		n++;
	for (i = 0; i < r->n_peers; i++) {
		const struct raft_peer *p = &r->peers[i];

		m = raft_conf_find(&r->conf, p->node);
		n += p->node != node && m && m->role == RAFT_VOTER && p->recent_recv &&
		     !p->nonvoting && !meta_is_nonvoting(meta, p->node);
	}
	return n >= (voters - 1) / 2 + 1;
}

/* Handles a report that another instance is bound. A sole voter had no other voter to ask whether
   it is the first instance under its number: it loses its vote here. The others were admitted by a
   quorum, which outweighs one node. */
static void admission_deny(struct meta *meta, ramp_node_t from)
{
	struct raft_event ev = {.type = RAFT_EV_DENY};
	const struct raft *r = meta_raft(meta);

	if (!meta_admission(meta)->format_logged)
		log_error("meta: node %u knows another instance of node %u: one of them was "
			  "formatted again, and it does not follow this node",
			  from, meta_opened(meta)->self);
	meta_admission(meta)->format_logged = true;
	if (raft_conf_voters(&r->conf) != 1)
		return;
	meta_admission(meta)->denied = true;
	meta_step(meta, &ev);
}

void admission_received(struct meta *meta, ramp_node_t from, uint8_t flags, uint64_t instance)
{
	const struct raft *r = meta_raft(meta);

	if (flags & ADMISSION_ANSWER_ME)
		send_admission(meta, from, false);
	if (flags & ADMISSION_NONVOTING)
		note_nonvoting(meta, from);
	if (r->confirmed && instance != 0 && instance != meta_opened(meta)->instance)
		admission_deny(meta, from);
	if (r->confirmed || meta_admission(meta)->denied)
		return;
	if (from <= RAFT_NODES_MAX)
		meta_admission(meta)->fresh[from] = (flags & ADMISSION_FRESH) != 0;
	if (instance == meta_opened(meta)->instance && instance != 0) {
		admission_confirm(meta);
	} else if (instance != 0) {
		if (!meta_admission(meta)->format_logged)
			log_error("meta: node %u was formatted again: needs --rejoin",
				  meta_opened(meta)->self);
		meta_admission(meta)->format_logged = true;
	} else {
		count_fresh(meta);
	}
}

/* Returns the instance bound to a node; 0: none yet. Called for each message, so the tables are
   read only until they have it. */
static uint64_t bound_instance(struct meta *meta, ramp_node_t node)
{
	const bool kept = node <= RAFT_NODES_MAX;
	struct node_row row;

	if (kept && meta_admission(meta)->bound[node] != 0)
		return meta_admission(meta)->bound[node];
	if (journal_get_node(meta_journal(meta), node, &row))
		return 0;
	if (kept)
		meta_admission(meta)->bound[node] = row.instance;
	return row.instance;
}

void admission_applied(struct meta *meta, const struct fsm_result *result)
{
	struct admission *a = meta_admission(meta);

	if (!result)
		memset(a->bound, 0, sizeof(a->bound));
	else if (result->type == META_MEMBER_AGAIN && result->reply.result == 0 &&
		 result->reply.node <= RAFT_NODES_MAX)
		a->bound[result->reply.node] = 0;
}

bool admission_is_another(struct meta *meta, ramp_node_t from, uint64_t instance)
{
	uint64_t bound = instance ? bound_instance(meta, from) : 0;

	if (bound == 0 || bound == instance)
		return false;
	note_nonvoting(meta, from); /* it may not know that itself yet */
	return true;
}

void admission_answer_another(struct meta *meta, ramp_node_t from)
{
	send_admission(meta, from, false);
	if (meta_now_ms(meta) < meta_admission(meta)->another_log_ms)
		return;
	meta_admission(meta)->another_log_ms = meta_now_ms(meta) + ANOTHER_LOG_MS;
	log_error("meta: node %u was formatted again: this node does not follow it", from);
}

/* ---- names and addresses of members -------------------------------------------------------- */

static int encode_member(void *arg, const struct node_row *row)
{
	struct wire_w *w = arg;

	if (row->role != NODE_REMOVED)
		member_encode(w, row);
	return 0;
}

void admission_tell_members(struct meta *meta, ramp_node_t to)
{
	uint8_t buf[1 + RAFT_NODES_MAX * MEMBER_BYTES];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, WIRE_MEMBERS);
	if (journal_walk_nodes(meta_journal(meta), encode_member, &w) == 0 && !w.bad)
		meta_send(meta, to, buf, w.len);
}

/* The tables' row counts, also of a node that was removed. There are no more members than a message
   can name. */
void admission_members(struct meta *meta, struct wire_r *body)
{
	struct node_row row, known;
	uint32_t i;

	for (i = 0; i < RAFT_NODES_MAX && member_decode(body, &row); i++)
		if (journal_get_node(meta_journal(meta), row.node, &known) == -ENOENT)
			meta_heard_of(meta, &row);
}
