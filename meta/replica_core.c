/*
 * A replica's ground: its end by an error, and the steps of its core. See replica_core.h.
 */
#include "replica_core.h"

#include <errno.h>

#include "base/log.h"
#include "raft_state.h"

int replica_fail(struct replica *p, const char *text)
{
	if (!p->failed && !journal_dead(p->journal))
		p->config.journal.fatal(p->config.journal.arg, text);
	p->failed = true;
	return -EIO;
}

int replica_raft_step(struct replica *p, const struct raft_event *event)
{
	enum raft_state was = p->raft.state;
	int rc = raft_step(&p->raft, event, &p->actions);

	if (p->raft.state != was)
		log_debug("meta: %s -> %s in term %llu", raft_state_name(was),
			  raft_state_name(p->raft.state), (unsigned long long)p->raft.term);
	return rc;
}
