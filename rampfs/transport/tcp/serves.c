/*
 * The serve threads of a source.
 *
 * One thread sends 3 to 5 GB/s. The first one has all demand connections, and of those for prefetch as
 * many as any other: each that comes goes to the thread that has the fewest. So one target that
 * prefetches over one connection is served by the first thread alone, and several connections by as
 * many threads. Each thread has a table of the exports of its own: an export is in all tables, and an
 * unexport is over when it is over in all.
 */
#include "serves.h"

#include <errno.h>
#include <stdlib.h>

#include "base/kernel.h"
#include "tcp_serve.h"

#define BY_ITSELF_MAX 4u /* unless the administrator says more */

struct tcp_serves {
	struct tcp_serve *serve[TRANSPORT_STREAMS_MAX];
	unsigned n;
	struct rate limit; /* of all of them */
};

/* A source on its own takes half of the processors at most: programs run there, too. */
static unsigned serves_count(unsigned wanted)
{
	unsigned half = kernel_processors() / 2;

	if (wanted)
		return wanted < TRANSPORT_STREAMS_MAX ? wanted : TRANSPORT_STREAMS_MAX;
	if (half > BY_ITSELF_MAX)
		return BY_ITSELF_MAX;
	return half ? half : 1;
}

int tcp_serves_start(struct tcp_serves **out, unsigned wanted, uint64_t limit_bytes_s,
		     struct ramp_err *err)
{
	struct tcp_serves *serves = calloc(1, sizeof(*serves));
	unsigned count = serves_count(wanted);
	int rc = 0;

	if (!serves)
		return ramp_err_sys(err, ENOMEM, "serve threads");
	rate_init(&serves->limit, limit_bytes_s);
	while (serves->n < count && !rc) {
		rc = tcp_serve_start(&serves->serve[serves->n], serves->n, &serves->limit, err);
		serves->n += !rc;
	}
	if (rc) {
		tcp_serves_stop(serves);
		return rc;
	}
	*out = serves;
	return 0;
}

void tcp_serves_stop(struct tcp_serves *serves)
{
	while (serves->n)
		tcp_serve_stop(serves->serve[--serves->n]);
	rate_destroy(&serves->limit);
	free(serves);
}

void tcp_serves_take(void *arg, int fd, const struct hello_peer *peer)
{
	struct tcp_serves *serves = arg;
	struct tcp_serve *fewest = serves->serve[0];

	for (unsigned i = 1; peer->class == HELLO_PREFETCH && i < serves->n; i++)
		if (tcp_serve_prefetches(serves->serve[i]) < tcp_serve_prefetches(fewest))
			fewest = serves->serve[i];
	tcp_serve_take(fewest, fd, peer);
}

static void unexport_first(struct tcp_serves *serves, const struct tp_key *key, unsigned n)
{
	struct unexport unexports[TRANSPORT_STREAMS_MAX];

	for (unsigned i = 0; i < n; i++)
		tcp_serve_unexport(serves->serve[i], key, &unexports[i]);
	for (unsigned i = 0; i < n; i++)
		tcp_serve_unexport_wait(serves->serve[i], &unexports[i]);
}

int tcp_serves_export(struct tcp_serves *serves, const struct tp_export *export,
		      struct ramp_err *err)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < serves->n && !rc; i++)
		rc = tcp_serve_export(serves->serve[i], export, err);
	if (rc)
		unexport_first(serves, &export->key, i - 1);
	return rc;
}

void tcp_serves_unexport(struct tcp_serves *serves, const struct tp_key *key)
{
	unexport_first(serves, key, serves->n);
}

void tcp_serves_stats(struct tcp_serves *serves, struct tp_stats *stats)
{
	for (unsigned i = 0; i < serves->n; i++)
		tcp_serve_stats(serves->serve[i], stats);
}
