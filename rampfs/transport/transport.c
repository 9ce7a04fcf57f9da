/*
 * Opens the transport of a daemon: the roof of this folder.
 *
 * Every peer speaks TCP. RDMA (verbs/) wraps it: reads that its regions cover go over that, all
 * others over TCP, and a peer that lacks it is reached over TCP alone.
 */
#include "transport.h"

#include "transport/tcp/tcp.h"
#include "transport/verbs/verbs.h"

int transport_open(const struct transport_config *config, struct tp **out, struct ramp_err *err)
{
	struct tp *tcp;
	int rc = tcp_open(config->peers, config->streams, config->limit_bytes_s, &tcp, err);

	if (rc)
		return rc;
	*out = tcp;
	if (config->choice == TRANSPORT_TCP)
		return 0;
	rc = verbs_open(config->peers, tcp, config->address, config->choice == TRANSPORT_VERBS, out,
			err);
	if (rc) {
		tcp->ops->stop(tcp);
		*out = NULL;
	}
	return rc;
}
