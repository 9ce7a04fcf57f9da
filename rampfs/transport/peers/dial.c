/*
 * Resolving the addresses of peers, and dialing them.
 *
 * Only the node with the smaller number dials; the other one resolves the address too, since its
 * data connections go there.
 *
 *   IDLE --dial_start--> RESOLVING --resolved--> HANDSHAKE --dial_done--> IDLE
 *                            |                      |          (its channel is up)
 *                            +----dial_failed-------+--> WAITING --on_wait_over--> RESOLVING
 *   HANDSHAKE --dial_failed--> HANDSHAKE   with the next address of the name
 *   RESOLVING --resolved--> IDLE           where the other node dials
 *   any --dial_stop--> IDLE                removed, or its address changed
 *
 * Happy path: dial_start resolves HOST:PORT (at once where it is numeric, else by a worker);
 * then handshake.c connects and runs the hello; dial_done.
 *
 * How it fails: a name that does not resolve, a connection refused or not answered within the
 * hello's time, a hello that ends badly. The next address of the name is tried at once; when all
 * were tried, the wait doubles from reconnect_min_ms to reconnect_max_ms, and the name is
 * resolved again. A failure is logged when its words change, not each time.
 */
#include "dial.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "channel.h"
#include "handshake.h"
#include "peer_core.h"

/* A resolution under way. It outlives a dial_stop (peer == NULL then). */
struct resolve {
	struct peers *peers;
	struct peer *peer;
	atomic_bool dropped; /* the result is not needed any more */
	char host[RAMP_ADDRESS_MAX + 1], port[16];
	int rc; /* of getaddrinfo */
	struct addrinfo *found;
};

#define STATE(state) (1u << (state))

/* Besides any -> IDLE. */
static const struct {
	const char *name;
	unsigned int next;
} dial_states[] = {
	[DIAL_IDLE] = {"IDLE", STATE(DIAL_RESOLVING)},
	[DIAL_RESOLVING] = {"RESOLVING", STATE(DIAL_HANDSHAKE) | STATE(DIAL_WAITING)},
	[DIAL_HANDSHAKE] = {"HANDSHAKE", STATE(DIAL_HANDSHAKE) | STATE(DIAL_WAITING)},
	[DIAL_WAITING] = {"WAITING", STATE(DIAL_RESOLVING)},
};

static void resolve_now(struct peer *peer);
static void handshake_next(struct peer *peer);

/* Changes the state: the only function that does. Aborts on a step that the drawing lacks. */
static void dial_go(struct peer *peer, enum dial_state from, enum dial_state to)
{
	if (peer->dial != from || !((dial_states[from].next | STATE(DIAL_IDLE)) & STATE(to))) {
		log_error("dialing node %u: no step from %s (expected %s) to %s", peer->node,
			  dial_states[peer->dial].name, dial_states[from].name,
			  dial_states[to].name);
		abort();
	}
	log_debug("dialing node %u: %s -> %s", peer->node, dial_states[from].name,
		  dial_states[to].name);
	peer->dial = to;
}

static bool ours_to_dial(const struct peer *peer)
{
	return peer->peers->self.node < peer->node;
}

static void on_wait_over(uv_timer_t *timer)
{
	struct peer *peer = (struct peer *)((char *)timer - offsetof(struct peer, wait));

	resolve_now(peer);
}

void dial_failed(struct peer *peer, const struct ramp_err *err)
{
	struct peers *peers = peer->peers;
	uint32_t wait_ms;

	peer->handshake = NULL;
	if (strcmp(peer->last_failure, err->text) != 0) {
		log_info("node %u (%s) at %s is not reached: %s", peer->node, peer->name,
			 peer->address, err->text);
		snprintf(peer->last_failure, sizeof(peer->last_failure), "%s", err->text);
	}
	if (peer->dial == DIAL_HANDSHAKE && ++peer->next_address < peer->n_addresses) {
		handshake_next(peer);
		return;
	}
	wait_ms = peer->wait_ms ? peer->wait_ms : peers->reconnect_min_ms;
	peer->wait_ms =
		wait_ms * 2 < peers->reconnect_max_ms ? wait_ms * 2 : peers->reconnect_max_ms;
	dial_go(peer, peer->dial, DIAL_WAITING);
	uv_timer_start(&peer->wait, on_wait_over, wait_ms, 0);
}

static void handshake_next(struct peer *peer)
{
	struct endpoint_address to = peer->addresses[peer->next_address];
	struct ramp_err err;

	dial_go(peer, peer->dial, DIAL_HANDSHAKE);
	/* A connect that fails at once is treated as one that fails later. The recursion is not
	   deep: each failure takes another address, and there are few. */
	if (handshake_dial(peer, &to, &err))
		dial_failed(peer, &err);
}

static void take_addresses(struct peer *peer, const struct addrinfo *found)
{
	unsigned int n = 0;

	pthread_mutex_lock(&peer->lock);
	for (; found && n < PEER_ADDRESSES_MAX; found = found->ai_next) {
		if (found->ai_addrlen > sizeof(peer->addresses[n].sa))
			continue;
		memcpy(&peer->addresses[n].sa, found->ai_addr, found->ai_addrlen);
		peer->addresses[n].len = found->ai_addrlen;
		n++;
	}
	peer->n_addresses = n;
	if (peer->best >= n)
		peer->best = 0;
	pthread_mutex_unlock(&peer->lock);
}

static void resolved(struct peer *peer, int rc, const struct addrinfo *found)
{
	struct ramp_err err;

	if (!rc && found)
		take_addresses(peer, found);
	if (rc || !found || peer->n_addresses == 0) {
		ramp_err_set(&err, EHOSTUNREACH, "%s does not resolve: %s", peer->address,
			     rc ? gai_strerror(rc) : "no address");
		dial_failed(peer, &err);
		return;
	}
	if (!ours_to_dial(peer)) {
		peer->last_failure[0] = 0;
		peer->wait_ms = 0;
		dial_go(peer, DIAL_RESOLVING, DIAL_IDLE);
		if (peer->channel)
			dial_prefer(peer, channel_fd(peer->channel));
		return;
	}
	peer->next_address = 0;
	handshake_next(peer);
}

static void resolve_work(void *arg)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct resolve *resolve = arg;

	if (!atomic_load(&resolve->dropped))
		resolve->rc = getaddrinfo(resolve->host, resolve->port, &hints, &resolve->found);
}

static void on_resolved(void *arg)
{
	struct resolve *resolve = arg;
	struct peers *peers = resolve->peers;
	struct peer *peer = resolve->peer;

	if (peer) {
		peer->resolve = NULL;
		resolved(peer, resolve->rc, resolve->found);
	}
	if (resolve->found)
		freeaddrinfo(resolve->found);
	free(resolve);
	peers_release(peers);
}

static int resolve_later(struct peer *peer, const char *host, const char *port)
{
	struct resolve *resolve = calloc(1, sizeof(*resolve));

	if (!resolve)
		return -ENOMEM;
	resolve->peers = peer->peers;
	resolve->peer = peer;
	snprintf(resolve->host, sizeof(resolve->host), "%s", host);
	snprintf(resolve->port, sizeof(resolve->port), "%s", port);
	peer->resolve = resolve;
	peers_hold(peer->peers);
	loop_work_slow(peer->peers->loop, resolve_work, on_resolved, resolve);
	return 0;
}

static void resolve_now(struct peer *peer)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
	};
	char host[RAMP_ADDRESS_MAX + 1], port[16];
	struct addrinfo *found = NULL;
	struct ramp_err err;
	int rc;

	dial_go(peer, peer->dial, DIAL_RESOLVING);
	if (endpoint_split(peer->address, host, sizeof(host), port, sizeof(port), &err)) {
		dial_failed(peer, &err);
		return;
	}
	if (getaddrinfo(host, port, &hints, &found) == 0) {
		resolved(peer, 0, found);
		freeaddrinfo(found);
		return;
	}
	rc = resolve_later(peer, host, port);
	if (rc) {
		ramp_err_set(&err, -rc, "resolving %s: %s", peer->address, strerror(-rc));
		dial_failed(peer, &err);
	}
}

void dial_start(struct peer *peer)
{
	if (peer->dial != DIAL_IDLE || (ours_to_dial(peer) && peer->channel))
		return;
	resolve_now(peer);
}

void dial_stop(struct peer *peer)
{
	if (peer->resolve) {
		peer->resolve->peer = NULL;
		atomic_store(&peer->resolve->dropped, true); /* too late does no harm */
		peer->resolve = NULL;
	}
	if (peer->handshake) {
		handshake_drop(peer->handshake);
		peer->handshake = NULL;
	}
	uv_timer_stop(&peer->wait);
	peer->wait_ms = 0;
	peer->last_failure[0] = 0;
	dial_go(peer, peer->dial, DIAL_IDLE);
}

void dial_done(struct peer *peer)
{
	peer->handshake = NULL;
	peer->wait_ms = 0;
	peer->last_failure[0] = 0;
	dial_go(peer, peer->dial, DIAL_IDLE);
}

/* Gets the 16 bytes of an IPv6 address, with IPv4 mapped into it. False: neither. */
static bool host_bytes(const struct sockaddr_storage *sa, uint8_t host[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (sa->ss_family == AF_INET6) {
		memcpy(host, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
		return true;
	}
	if (sa->ss_family != AF_INET)
		return false;
	memcpy(host, mapped, sizeof(mapped));
	memcpy(host + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	return true;
}

void dial_prefer(struct peer *peer, int fd)
{
	uint8_t connected[16], candidate[16];
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);

	if (getpeername(fd, (struct sockaddr *)&sa, &len) || !host_bytes(&sa, connected))
		return;
	pthread_mutex_lock(&peer->lock);
	for (unsigned int i = 0; i < peer->n_addresses; i++)
		if (host_bytes(&peer->addresses[i].sa, candidate) &&
		    memcmp(connected, candidate, sizeof(connected)) == 0) {
			peer->best = i;
			break;
		}
	pthread_mutex_unlock(&peer->lock);
}
