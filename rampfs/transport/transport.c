/*
 * Opens the transport of a daemon: the roof of this folder.
 *
 * Every peer speaks TCP. A faster transport (verbs/) will wrap it: reads that its keys cover go
 * over it, all others over TCP, and a peer that lacks it is reached over TCP alone.
 */
#include "transport.h"

#include "transport/tcp/tcp.h"

int transport_open(struct peers *peers, struct tp **out, struct ramp_err *err)
{
	return tcp_open(peers, out, err);
}
