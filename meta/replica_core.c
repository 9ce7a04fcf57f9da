/*
 * A replica's ground. See replica_core.h.
 */
#include "replica_core.h"

#include <errno.h>

int replica_fail(struct replica *p, const char *text)
{
	if (!p->failed && !journal_dead(p->journal))
		p->config.journal.fatal(p->config.journal.arg, text);
	p->failed = true;
	return -EIO;
}
