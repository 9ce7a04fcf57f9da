/*
 * The Raft core: what a follower does with the leader's log.
 *
 * The happy path: entries continue the log where the message says, are appended, become durable
 * in this turn's transaction, and then the answer goes. A snapshot comes in pieces, in order; with
 * the last one the log begins anew after it.
 *
 * How it fails: a message of an old term is refused with the new one; a gap or another term at
 * the place before the entries is refused with a hint where to look; late and repeated messages
 * are acknowledged for exactly what they prove, and take nothing away. A committed entry that
 * would have to change sets actions.failed.
 */
#include "raft_follow.h"

#include "raft_log.h"

/* A message of the leader of this term came. */
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

/* True where the leader of this term has been told of more entries than there are: what is durable
   stays, so this journal isn't the one that they were in. Who has no voice promised nothing. */
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
	/* Rounds are counted anew by each leader: one of an old term proves nothing in this one. */
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

/* Where the leader should look next: before the term whose entries differ, never below what is
   committed. */
static uint64_t conflict_hint(const struct raft *r, uint64_t index)
{
	uint64_t term = raft_term_at(r, index);

	while (index > r->commit_index && raft_term_at(r, index) == term)
		index--;
	return index;
}

/* Takes entry e as `index`; false: it can't be taken (no room, or it must never be). */
static bool take_entry(struct raft_ctx *s, uint64_t index, const struct raft_entry *e, bool *conf)
{
	struct raft *r = s->r;

	if (index <= r->last_index) {
		if (raft_term_at(r, index) == e->term)
			return true; /* the same entry (3.5, Log Matching) */
		if (index <= r->commit_index) {
			s->a->failed = true; /* a committed entry differs: not a Raft cluster */
			return false;
		}
		raft_log_truncate(r, index);
		step_log_changed(s, index);
		*conf = true; /* a configuration may have gone with it */
	}
	if (raft_log_append(r, e) < 0)
		return false;
	step_log_changed(s, index);
	*conf = *conf || e->type == RAFT_CONF;
	return true;
}

/* AppendEntries (3.5). What is acknowledged is what this message checked: index + n_entries. */
void step_append(struct raft_ctx *s, const struct raft_message *m)
{
	struct raft *r = s->r;
	uint64_t match = m->index;
	uint32_t i = 0;
	bool conf = false;

	if (m->term < r->term) {
		refuse_append(s, m, m->index); /* carries our term: the old leader steps down */
		return;
	}
	heard_leader(s, m);
	if (has_amnesia(s, m))
		return;
	if (m->index > r->last_index) {
		refuse_append(s, m, r->last_index);
		return;
	}
	if (m->index >= r->snap_index && raft_term_at(r, m->index) != m->log_term) {
		refuse_append(s, m, conflict_hint(r, m->index));
		return;
	}
	/* What was compacted was committed, so it is the same. */
	while (match < r->snap_index && i < m->n_entries) {
		match++;
		i++;
	}
	for (; i < m->n_entries && take_entry(s, match + 1, &m->entries[i], &conf); i++)
		match++;
	if (conf)
		raft_refresh_conf(r);
	step_commit(s, m->leader_commit < match ? m->leader_commit : match);
	answer_append(s, m, match);
}

/* InstallSnapshot (5.3), in pieces. Late and repeated ones must not take anything away. */
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
