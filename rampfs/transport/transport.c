/*
 * Opens the transport of a daemon: the roof of this folder.
 *
 * Every peer speaks TCP. A faster transport (verbs/) will wrap it: reads that its keys cover go
 * over it, all others over TCP, and a peer that lacks it is reached over TCP alone.
 */
#include "transport.h"

#include <errno.h>

#include "transport/tcp/tcp.h"

int transport_check(enum transport_choice choice, struct ramp_err *err)
{
	if (choice != TRANSPORT_VERBS)
		return 0;
	return ramp_err_set(err, ENOTSUP,
			    "transport=verbs: this version has no RDMA backend (transport=auto or "
			    "tcp)");
}

int transport_open(const struct transport_config *config, struct tp **out, struct ramp_err *err)
{
	int rc = transport_check(config->choice, err);

	return rc ? rc : tcp_open(config->peers, out, err);
}
