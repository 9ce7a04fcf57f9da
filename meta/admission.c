/*
 * May this node vote? A founder whose state directory was made anew under its old number has lost
 * its log and its votes, and must not pretend to have them; the first time it can't know by itself
 * whether it is such a one. So a freshly formatted founder asks the others:
 *
 *	fresh	"my log is as mkfs made it": nobody has ever been elected with that node's help.
 *		When a quorum's worth of the *others* is fresh, no quorum has ever decided anything,
 *		and there is nothing to have lost.
 *	instance "the tables have that instance bound to you" (NODE_UP). If it is ours, we are who
 *		we were, or have been taken in anew by a quorum that didn't count us.
 *
 * Until then the core is not `confirmed`: it neither votes nor campaigns, and its
 * acknowledgements don't count; it tells all members so again and again (NONVOTING), so that
 * nobody takes away a node whose voice is needed. A node of which another instance is bound never
 * gets its voice back: it says so, and needs --rejoin under a new number. A joiner's log is never
 * fresh: it gets its voice by name, with its first NODE_UP, and no standby is promoted before.
 *
 * A number is bound to one instance for good, so whoever has applied that goes by it: another
 * instance under that number is brought up to date and learns what it is, but isn't followed, and
 * nothing that it says counts. That is also how a sole voter is found out, who confirms himself: it
 * hears of it from whom it tries to lead, and leads no more until it is started anew.
 *
 * And may it go on? A journal that was put back from a backup has lost votes and entries, too,
 * without knowing. Its lives are counted (command.h), so the others may have seen a later one: whom
 * a node hears it tells that. And a leader tells each follower what it has acknowledged to it
 * (raft.h, hint), which shows a copy of the same life; whoever has led before tells it, too, as far
 * as that was committed, so that another leader is no way out for a copy that is still behind. An
 * old copy is marked in its own file, and the process begins anew without a voice: it catches up,
 * what lies there can be moved away, and it needs --rejoin.
 *
 * And who else is there? A node that was down learns of who has come meanwhile from the leader, who
 * may be one of these, and wait for it to connect. So whoever hears a node tells it the members.
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
#define NONVOTING_MS	   1000 /* since it said so last */
#define MEMBER_BYTES	   (16 + RAMP_NODE_NAME_MAX + RAMP_ADDRESS_MAX)

/* A receiver takes no notice of flags that it doesn't know. */
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
	log_info("meta: node %u takes part in votes", meta_opened(meta)->self);
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

/* Voters other than this one that must be fresh: as many as any quorum has besides it, and so
   more than could be fresh if one had ever stood. */
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

/* It says so again and again, and stops with its first voice. */
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
	if (at)
		*at = (struct nonvoting){.node = from,
					 .until_ms = meta_now_ms(meta) + NONVOTING_MS};
	pthread_mutex_unlock(&meta_admission(meta)->lock);
}

bool meta_is_voiceless(struct meta *meta, ramp_node_t node)
{
	uint64_t now_ms = meta_clock_ms();
	bool is = false;
	uint32_t i;

	if (node == meta_opened(meta)->self)
		return meta_waits_for_voice(meta);
	pthread_mutex_lock(&meta_admission(meta)->lock);
	for (i = 0; i < RAFT_NODES_MAX && !is; i++)
		is = meta_admission(meta)->others[i].node == node &&
		     now_ms < meta_admission(meta)->others[i].until_ms;
	pthread_mutex_unlock(&meta_admission(meta)->lock);
	return is;
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
		     !p->nonvoting && !meta_is_voiceless(meta, p->node);
	}
	return n >= (voters - 1) / 2 + 1;
}

/* A sole voter had nobody to ask whether it is the first of its number, and hears it here. Others
   have their voice from a quorum, which outweighs one. */
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

/* 0: none yet. Asked for each message, and the tables only until they know. */
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

bool admission_is_another(struct meta *meta, ramp_node_t from, uint64_t instance)
{
	uint64_t bound = instance ? bound_instance(meta, from) : 0;

	if (bound == 0 || bound == instance)
		return false;
	note_nonvoting(meta, from); /* it may not know so itself yet */
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

/* ---- who else is there --------------------------------------------------------------------- */

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

/* What the tables say counts, also of one that has gone. There are no more members than a message
   of ours can name. */
void admission_members(struct meta *meta, struct wire_r *body)
{
	struct node_row row, known;
	uint32_t i;

	for (i = 0; i < RAFT_NODES_MAX && member_decode(body, &row); i++)
		if (journal_get_node(meta_journal(meta), row.node, &known) == -ENOENT)
			meta_heard_of(meta, &row);
}
