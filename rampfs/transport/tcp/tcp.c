/*
 * The TCP transport: transport.h's operations over serves.c and tcp_read.c.
 */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>

#include "serves.h"
#include "tcp_read.h"
#include "transport/peers/peers_data.h"

static int tcp_export(struct tp *tp, const struct tp_export *export, struct ramp_err *err)
{
	return tcp_serves_export(((struct tcp *)tp)->serves, export, err);
}

static void tcp_unexport(struct tp *tp, const struct tp_key *key)
{
	tcp_serves_unexport(((struct tcp *)tp)->serves, key);
}

static void tcp_stop(struct tp *tp)
{
	struct tcp *tcp = (struct tcp *)tp;

	peers_on_data(tcp->peers, NULL, NULL);
	tcp_serves_stop(tcp->serves);
	free(tcp);
}

static void tcp_stats(struct tp *tp, struct tp_stats *stats)
{
	struct tcp *tcp = (struct tcp *)tp;

	*stats = (struct tp_stats){
		.read_bytes = atomic_load(&tcp->read_bytes),
		.reads = atomic_load(&tcp->reads),
	};
	tcp_serves_stats(tcp->serves, stats);
}

static void tcp_expect(struct tp *tp, ramp_node_t node)
{
	(void)tp;
	(void)node;
}

static bool tcp_peer(struct tp *tp, struct tp_peer *out)
{
	(void)tp;
	*out = (struct tp_peer){.node = out->node};
	return false;
}

static const struct tp_ops tcp_ops = {
	.name = "tcp",
	.export = tcp_export,
	.unexport = tcp_unexport,
	.arrived = tcp_arrived,
	.expect = tcp_expect,
	.connect = tcp_connect,
	.fd = tcp_fd,
	.state = tcp_state,
	.incarnation = tcp_incarnation,
	.will_read = tcp_will_read,
	.span = tcp_span,
	.lands = tcp_lands,
	.read = tcp_read,
	.reap = tcp_reap,
	.close = tcp_close,
	.stop = tcp_stop,
	.stats = tcp_stats,
	.peer = tcp_peer,
};

int tcp_open(struct peers *peers, unsigned streams, uint64_t limit_bytes_s, struct tp **out,
	     struct ramp_err *err)
{
	struct tcp *tcp = calloc(1, sizeof(*tcp));
	int rc;

	if (!tcp)
		return ramp_err_sys(err, ENOMEM, "TCP transport");
	tcp->tp.ops = &tcp_ops;
	tcp->peers = peers;
	rc = tcp_serves_start(&tcp->serves, streams, limit_bytes_s, err);
	if (rc) {
		free(tcp);
		return rc;
	}
	peers_on_data(peers, tcp_serves_take, tcp->serves);
	*out = &tcp->tp;
	return 0;
}
