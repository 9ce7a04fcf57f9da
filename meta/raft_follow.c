/*
 * The Raft core's follower. See raft_follow.h.
 *
 * The happy path: entries continue the log where the message says, are appended, become durable in
 * this turn's transaction, and then the answer is sent. A snapshot comes in pieces, in order; with
 * the last one the log is emptied and begins after it.
 *
 * How it fails: a message of an old term is refused with the new one. A gap, or another term at the
 * place before the entries, is refused with a hint where to look. Late and repeated messages are
 * acknowledged for exactly what they prove, and take nothing away. A committed entry that would
 * have to change sets actions.failed.
 */
#include "raft_follow.h"

#include "raft_log.h"

/* Follows the leader of this term, from which a message came, and renews the lease. */
static void heard_leader(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;

	if (r->state == RAFT_LEADER)
		s->a->failed = true; /* two leaders in one term: not a Raft cluster */
	if (r->state != RAFT_FOLLOWER || r->leader != m->from)
		step_follow(s, r->term, m->from);
	r->lease = true;
	r->lease_until = s->now_ms + r->opt.election_ms;
	step_election_clock(s);
}

/* Returns true where this node has acknowledged more entries to the leader of this term than its
   log holds. Durable entries stay, so this journal isn't the one that they were in. A node that was
   never admitted to vote has promised nothing. */
static bool has_amnesia(struct raft_ctx *s, const struct raft_message *m)
{
	if (!s->r->confirmed || m->hint <= s->r->last_index)
		return false;
	s->a->amnesia = true;
	return true;
}

static struct raft_message *answer_append(struct raft_ctx *s, const struct raft_message *m,
					  uint64_t index)
{
	struct raft_message *answer = step_new_message(s, RAFT_APPEND_ANSWER, m->from);

	if (!answer)
		return NULL;
	answer->index = index;
	/* Each leader counts its rounds from the start: an old term's proves nothing in this
	   one. */
	answer->round = m->term == s->r->term ? m->round : 0;
	answer->nonvoting = !s->r->confirmed;
	return answer;
}

static void refuse_append(struct raft_ctx *s, const struct raft_message *m, uint64_t hint)
{
	struct raft_message *answer = answer_append(s, m, m->index);

	if (!answer)
		return;
	answer->reject = true;
	answer->hint = hint;
}

/* Returns where the leader should look next: before the term whose entries differ, and never below
   what is committed. */
static uint64_t conflict_hint(const struct raft *r, uint64_t index)
{
	uint64_t term = raft_term_at(r, index);

	while (index > r->commit_index && raft_term_at(r, index) == term)
		index--;
	return index;
}

/* Takes entry e as `index`. Returns false where it can't be taken: no room, or a committed entry
   differs. Figure 3.1: "If an existing entry conflicts with a new one (same index but different
   terms), delete the existing entry and all that follow it. Append any new entries not already in
   the log". */
static bool take_entry(struct raft_ctx *s, uint64_t index, const struct raft_entry *e, bool *conf)
{
	struct raft *r = s->r;

	if (index <= r->last_index) {
		if (raft_term_at(r, index) == e->term)
			return true; /* the same entry (3.5, Log Matching) */
		if (index <= r->commit_index) {
			s->a->failed = true; /* not a Raft cluster */
			return false;
		}
		raft_log_truncate(r, index);
		step_log_changed(s, index);
		*conf = true; /* a configuration may have been dropped with it */
	}
	if (raft_log_append(r, e) < 0)
		return false;
	step_log_changed(s, index);
	*conf = *conf || e->type == RAFT_CONF;
	return true;
}

/* AppendEntries (3.5). Acknowledges exactly what this message checked: index + n_entries. */
void step_append(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	uint64_t match = m->index;
	uint32_t i = 0;
	bool conf = false;

	if (m->term < r->term) {
		/* Figure 3.1: "Reply false if term < currentTerm". The answer carries this node's
		   term, and the old leader steps down. */
		refuse_append(s, m, m->index);
		return;
	}
	heard_leader(s, m);
	if (has_amnesia(s, m))
		return;
	/* Figure 3.1: "Reply false if log doesn't contain an entry at prevLogIndex whose term
	   matches prevLogTerm": it ends before that entry, or holds one of another term. */
	if (m->index > r->last_index) {
		refuse_append(s, m, r->last_index);
		return;
	}
	if (m->index >= r->snap_index && raft_term_at(r, m->index) != m->log_term) {
		refuse_append(s, m, conflict_hint(r, m->index));
		return;
	}
	/* Compacted entries were committed, so they are the same. */
	while (match < r->snap_index && i < m->n_entries) {
		match++;
		i++;
	}
	for (; i < m->n_entries && take_entry(s, match + 1, &m->entries[i], &conf); i++)
		match++;
	if (conf)
		raft_refresh_conf(r);
	/* Figure 3.1: "If leaderCommit > commitIndex, set commitIndex = min(leaderCommit, index of
	   last new entry)". */
	step_commit(s, m->leader_commit < match ? m->leader_commit : match);
	answer_append(s, m, match);
}

/* InstallSnapshot (5.3), in pieces. A late or repeated one must not take anything away. */
void step_snapshot(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	struct raft_message *answer;

	if (m->term < r->term) {
		refuse_append(s, m, m->index);
		return;
	}
	heard_leader(s, m);
	if (has_amnesia(s, m))
		return;
	if (m->index <= r->commit_index || raft_term_at(r, m->index) == m->log_term) {
		/* The log has that entry, and so all before it: nothing to take. */
		step_commit(s, m->index);
		answer_append(s, m, m->index);
		return;
	}
	if (m->index != r->incoming_index || m->log_term != r->incoming_term || m->bad) {
		r->incoming_index = m->index;
		r->incoming_term = m->log_term;
		r->incoming_offset = 0;
	}
	if (m->offset == r->incoming_offset && !m->bad) {
		s->a->stage = m->offset == 0 ? RAFT_STAGE_FIRST : RAFT_STAGE_NEXT;
		r->incoming_offset += m->len;
		if (m->done) {
			r->incoming_index = r->incoming_term = r->incoming_offset = 0;
			raft_log_reset(r, m->index, m->log_term, m->conf, m->conf_index);
			raft_refresh_conf(r);
			r->commit_index = r->last_applied = m->index;
			s->a->install = true;
			s->a->log_from = s->a->apply_to = s->a->compact_to = 0;
			answer_append(s, m, m->index);
			return;
		}
	}
	answer = step_new_message(s, RAFT_SNAPSHOT_ANSWER, m->from);
	if (!answer)
		return;
	answer->index = m->index;
	answer->offset = r->incoming_offset;
	answer->round = m->round;
	answer->nonvoting = !r->confirmed;
}
