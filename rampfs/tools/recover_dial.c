/*
 * Dials every address at which a member may be. See recover_dial.h.
 *
 * A thread for each address, since one that drops packets takes HELLO_TIMEOUT_MS. Only a node's own
 * proof of the key says that a member is there; a process that takes the connection and says nothing
 * may be a member that hangs, whose programs use its segments all the same.
 */
#include "recover_dial.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "transport/peers/join.h"

struct dialing {
	const struct dial *to;
	const uint8_t *key;
	uint8_t cluster_id[32];
	int rc;
	struct ramp_err err;
	pthread_t thread;
};

static void *dial_one(void *arg)
{
	struct dialing *d = arg;

	d->rc = join_probe(d->to->address, d->key, d->cluster_id, &d->err);
	return NULL;
}

/* Words what answered at an address, or that nothing did. */
static int judge(const struct dialing *d, const uint8_t cluster_id[32], struct ramp_err *err)
{
	const char *name = d->to->name, *at = d->to->address;

	switch (d->rc) {
	case 0:
		return ramp_err_set(
			err, EADDRINUSE, "node %s answers at %s%s: it is not lost", name, at,
			memcmp(d->cluster_id, cluster_id, 32) == 0 ? "" : ", in another cluster");
	case -ETIMEDOUT:
		return ramp_err_set(err, EADDRINUSE,
				    "node %s takes connections at %s and is silent: end it first",
				    name, at);
	case -EPROTONOSUPPORT:
	case -EACCES:
		return ramp_err_set(err, EADDRINUSE, "a node answers at %s (%s's): %.160s", at,
				    name, d->err.text);
	case -EKEYREJECTED:
	case -EPROTO:
	case -ECONNRESET:
		printf("node %s: at %s is something else, not a node that has the key\n", name, at);
		return 0;
	default:
		printf("node %s: no answer (%s)\n", name, d->err.text);
		return 0;
	}
}

int recover_dial(const struct dial *dials, size_t n, const uint8_t key[STATEDIR_KEY_BYTES],
		 const uint8_t cluster_id[32], struct ramp_err *err)
{
	static struct dialing all[DIAL_MAX];
	size_t begun;
	int code = 0, rc = 0;

	for (begun = 0; begun < n && !code; begun++) {
		all[begun] = (struct dialing){.to = &dials[begun], .key = key};
		code = pthread_create(&all[begun].thread, NULL, dial_one, &all[begun]);
	}
	begun -= code != 0;
	for (size_t i = 0; i < begun; i++)
		pthread_join(all[i].thread, NULL);
	if (code)
		return ramp_err_sys(err, code, "a thread that dials");
	for (size_t i = 0; i < begun && !rc; i++)
		rc = judge(&all[i], cluster_id, err);
	return rc;
}
