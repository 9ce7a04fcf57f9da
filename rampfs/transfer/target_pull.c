/*
 * The target's pull: its beginning, its prefetch, and how far it is.
 *
 * Page faults are answered first; then the programs that had the segment mapped get it back in
 * place (target.c). Pages that no program touches wait until taken is committed, or
 * PREFETCH_AFTER_MS: a pull at full speed would take the processors from the commit, for which the
 * caller of mv waits.
 */
#include "target_pull.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/page.h"
#include "memory/pages.h"
#include "memory/reserve.h"

#include "move_message.h"

void target_forget_tail(struct seg *seg, uint64_t pages)
{
	uint64_t page = pages;

	while ((page = pages_next_remote(seg, page)) != UINT64_MAX) {
		uint64_t won = pages_claim(seg, page, UINT64_MAX - page);

		pages_arrive(seg, page, won);
		page += won;
	}
}

int target_widen(struct move *m)
{
	struct ramp_err *err = &m->work_err;
	int rc = 0;

	if (seg_size(m->seg) != m->size && ftruncate(seg_fd(m->seg), (off_t)m->size))
		rc = ramp_err_sys(err, errno, "size of the segment");
	if (!rc)
		rc = pages_prepare(m->seg, m->size, err);
	if (!rc)
		rc = pages_mark_all_remote(m->seg, err);
	if (!rc)
		target_forget_tail(m->seg, page_count(m->size));
	return rc;
}

static enum pull_rank rank_of(const struct move *m)
{
	if (m->state == T_ROUNDS)
		return PULL_AHEAD;
	return m->state == T_COPYING || m->target.was_read_ahead ? PULL_DIRTY : PULL_PREFETCH;
}

int target_begin_pull(struct move *m)
{
	struct pull_source source = {
		.node = m->peer,
		.incarnation = m->peer_inc,
		.key = tp_key_of_attempt(m->id, m->k),
		.trace = m->trace,
		.rank = rank_of(m),
		.limit_bytes_s = m->limit_bytes_s,
		.batch = m->batch,
		.alone = m->state == T_COPYING || m->state == T_ROUNDS,
		.all = !m->demand_only && m->state != T_ROUNDS,
	};

	if (m->unchanged)
		reserve_release_slack(m->seg); /* all pages that will come are in the list */
	return pull_begin(m->t->pull, m->seg, &source, &m->work_err);
}

void target_prefetch(struct move *m)
{
	m->target.prefetch_wanted = true;
	if (m->target.prefetch_begun ||
	    !m->target.pull_begun) /* not begun: target_begun calls again */
		return;
	m->target.prefetch_begun = true;
	m->target.prefetch_us = clock_us();
	m->target.prefetch_pages = pages_missing(m->seg);
	pull_prefetch_all(m->t->pull, m->id);
	trace_step(m->trace, "the prefetch begins");
}

void target_send_pulled(struct move *m)
{
	struct pull_progress progress;
	struct msg_pulled p = {.id = m->id, .k = m->k};

	if (pull_progress(m->t->pull, m->id, &progress))
		return;
	p.all_pages = progress.pages_all;
	p.done_pages =
		progress.pages_missing > p.all_pages ? 0 : p.all_pages - progress.pages_missing;
	MOVE_SEND(m->t, m->peer, PROTO_PULLED, proto_put_pulled, &p);
}
