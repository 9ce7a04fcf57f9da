/*
 * The verbs transport: its operations, its messages, its device.
 *
 * Happy path: a thread opens the device that has this node's address, listens there, and asks each
 * node that is up where it listens (VERBS_WANTED, VERBS_AT). The reader's connections (verbs_conn.c) find
 * that there, and regions.c answers REGIONS_WANTED.
 *
 * How it fails: without a device there is one log line, and everything goes over TCP; it is looked
 * for again every 10 s. A device that is taken away, or says that it has failed, takes all queue pairs
 * and regions with it. A node that does not answer is asked again, every 10 s at last.
 */
#include "verbs.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "accept.h"
#include "base/clock.h"
#include "base/log.h"
#include "core.h"
#include "device.h"
#include "queue.h"
#include "queue_dial.h"
#include "regions.h"
#include "transport/peers/peer.h"
#include "transport/proto.h"
#include "verbs_conn.h"

#define VERBS_LOOK_MS	 10000u /* for a device */
#define VERBS_TICK_MS	 250
#define VERBS_QUEUES_MS	 3000u /* until all queue pairs of a removed device are gone */
#define VERBS_WAIT_US	 10000
#define VERBS_ASK_MIN_MS 250u
#define VERBS_ASK_MAX_MS 10000u
#define VERBS_PEERS	 64
#define VERBS_READY_MS	 30000u /* for which a queue pair waits for a connection */

static struct verbs *verbs_of(struct tp *tp)
{
	return (struct verbs *)tp;
}

/* ---- the device ---------------------------------------------------------------------------- */

/* The verbs thread's: the struct with what it opens devices by. */
struct verbs_all {
	struct verbs verbs; /* first */
	struct device_addresses addresses;
};

/* The threads that read end their queue pairs by themselves. Where one does not in time, the kernel's removal
   of the device waits until it does. */
static void verbs_abandon_device(struct verbs *verbs)
{
	uint64_t until_ms = clock_ms() + VERBS_QUEUES_MS;

	while (queue_any() && clock_ms() < until_ms)
		usleep(VERBS_WAIT_US);
	if (!queue_any())
		device_abandon(verbs->device);
}

static void verbs_forget_device(struct verbs *verbs, bool removed)
{
	struct accept *accept = verbs->accept;

	atomic_store(&verbs->has_device, false);
	atomic_fetch_add(&verbs->removals, 1);
	pthread_mutex_lock(&verbs->lock);
	verbs->accept = NULL;
	verbs->own.port = 0;
	pthread_mutex_unlock(&verbs->lock);
	verbs_conns_wake(verbs);
	queue_dial_expire(verbs, UINT64_MAX);
	regions_set_device(verbs->regions, NULL);
	accept_close(accept);
	if (removed)
		verbs_abandon_device(verbs);
	device_close(verbs->device);
	device_let_go();
	verbs->device = NULL;
	verbs->look_ms = clock_ms() + VERBS_LOOK_MS;
}

static int verbs_find_device(struct verbs *verbs, struct ramp_err *err)
{
	const struct device_addresses *addresses = &((struct verbs_all *)verbs)->addresses;
	struct accept *accept;
	int rc = device_open(addresses, &verbs->device, err);

	verbs->look_ms = clock_ms() + VERBS_LOOK_MS;
	if (rc)
		return rc;
	accept = accept_open(verbs->peers, verbs->device, verbs->life);
	if (!accept) {
		device_close(verbs->device);
		verbs->device = NULL;
		return ramp_err_sys(err, ENOMEM, "RDMA");
	}
	regions_set_device(verbs->regions, verbs->device);
	pthread_mutex_lock(&verbs->lock);
	verbs->accept = accept;
	verbs->own = (struct message_at){.life = verbs->life,
					 .address = *device_address(verbs->device),
					 .port = device_port(verbs->device),
					 .reads = device_reads(verbs->device)};
	memcpy(verbs->own.challenge, device_challenge(verbs->device), PROOF_CHALLENGE_BYTES);
	pthread_mutex_unlock(&verbs->lock);
	atomic_store(&verbs->has_device, true);
	log_info("RDMA device %s: nodes that have one, too, read pages from here over RDMA",
		 device_name(verbs->device));
	return 0;
}

/* False: the device has failed. */
static bool verbs_device_events(struct verbs *verbs)
{
	struct ibv_async_event event;
	bool good = true;

	while (!ibv_get_async_event(device_context(verbs->device), &event)) {
		enum ibv_event_type type = event.event_type;

		ibv_ack_async_event(&event);
		good = good && type != IBV_EVENT_DEVICE_FATAL && type != IBV_EVENT_CQ_ERR;
		log_line(type == IBV_EVENT_PORT_ACTIVE || type == IBV_EVENT_GID_CHANGE ||
					 type == IBV_EVENT_COMM_EST
				 ? LOG_LEVEL_DEBUG
				 : LOG_LEVEL_WARN,
			 "RDMA device %s: %s", device_name(verbs->device),
			 ibv_event_type_str(type));
	}
	return good;
}

static void verbs_attend_device(struct verbs *verbs)
{
	struct ramp_err err;
	bool removed;

	if (!verbs->device) {
		if (clock_ms() >= verbs->look_ms && verbs_find_device(verbs, &err))
			log_debug("no RDMA: %s", err.text);
		return;
	}
	removed = !accept_events(verbs->accept);
	if (!removed && verbs_device_events(verbs))
		return;
	log_warn("RDMA device %s is gone: pages go over TCP until it is back",
		 device_name(verbs->device));
	verbs_forget_device(verbs, removed);
}

/* ---- where others listen ------------------------------------------------------------------- */

/* True: it is time to ask that node, which is up, and has not told since it is up. */
static bool verbs_is_to_ask(struct verbs *verbs, const struct peer_status *peer, uint64_t now)
{
	struct verbs_node *node;
	bool ask = false;

	pthread_mutex_lock(&verbs->lock);
	node = verbs_node_of(verbs, peer->node);
	if (node && node->connects != peer->reconnects + 1) {
		node->connects = peer->reconnects + 1;
		node->at.port = 0;
		node->ask_ms = 0;
		node->after_ms = VERBS_ASK_MIN_MS;
	}
	if (node && !node->at.port && now >= node->ask_ms) {
		ask = true;
		node->ask_ms = now + node->after_ms;
		node->after_ms = node->after_ms * 2 < VERBS_ASK_MAX_MS ? node->after_ms * 2
								       : VERBS_ASK_MAX_MS;
	}
	pthread_mutex_unlock(&verbs->lock);
	return ask;
}

static void verbs_ask_node(struct verbs *verbs, ramp_node_t node)
{
	uint8_t body[MESSAGE_SMALL_BYTES];
	struct wire_w w;

	wire_w_init(&w, body, sizeof(body));
	message_put_wanted_at(&w);
	(void)peer_send(verbs->peers, node, PROTO_VERBS_WANTED, body, w.len);
}

static void verbs_ask(struct verbs *verbs)
{
	struct peer_status peers[VERBS_PEERS];
	uint64_t now = clock_ms();
	size_t n;

	if (!verbs->device)
		return;
	n = peers_status(verbs->peers, peers, VERBS_PEERS);
	for (size_t i = 0; i < n && i < VERBS_PEERS; i++)
		if (peers[i].up && verbs_is_to_ask(verbs, &peers[i], now))
			verbs_ask_node(verbs, peers[i].node);
}

static void *verbs_run(void *arg)
{
	struct verbs *verbs = arg;
	uint64_t count;

	while (!atomic_load(&verbs->stop)) {
		struct pollfd fds[3] = {{.fd = verbs->wake, .events = POLLIN},
					{.fd = -1, .events = POLLIN},
					{.fd = -1, .events = POLLIN}};

		if (verbs->device) {
			fds[1].fd = device_channel(verbs->device)->fd;
			fds[2].fd = device_context(verbs->device)->async_fd;
		}
		poll(fds, 3, verbs->device ? VERBS_TICK_MS : (int)VERBS_LOOK_MS);
		(void)!read(verbs->wake, &count, sizeof(count));
		if (atomic_load(&verbs->stop))
			break;
		verbs_attend_device(verbs);
		verbs_ask(verbs);
		queue_dial_expire(verbs, clock_ms() - VERBS_READY_MS);
	}
	if (verbs->device)
		verbs_forget_device(verbs, false);
	return NULL;
}

/* ---- messages; all on the control loop ----------------------------------------------------- */

static void on_verbs_wanted(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			    struct wire_r *body)
{
	struct verbs *verbs = arg;
	uint8_t answer[MESSAGE_SMALL_BYTES];
	struct message_at at;
	struct wire_w w;

	(void)incarnation;
	if (message_get_wanted_at(body)) {
		body->bad = true;
		return;
	}
	pthread_mutex_lock(&verbs->lock);
	at = verbs->own;
	pthread_mutex_unlock(&verbs->lock);
	at.life = verbs->life;
	wire_w_init(&w, answer, sizeof(answer));
	message_put_at(&w, &at);
	(void)peer_send(verbs->peers, from, PROTO_VERBS_AT, answer, w.len);
}

static void on_verbs_at(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			struct wire_r *body)
{
	struct verbs *verbs = arg;
	struct verbs_node *node;
	struct message_at at;

	(void)incarnation;
	if (message_get_at(body, &at)) {
		body->bad = true;
		return;
	}
	pthread_mutex_lock(&verbs->lock);
	node = verbs_node_of(verbs, from);
	if (node)
		node->at = at;
	/* Where it proves to be wrong later, it is asked soon. */
	if (node && at.port) {
		node->ask_ms = 0;
		node->after_ms = VERBS_ASK_MIN_MS;
	}
	pthread_mutex_unlock(&verbs->lock);
}

static void on_regions_wanted(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			      struct wire_r *body)
{
	struct verbs *verbs = arg;
	struct message_wanted wanted;

	(void)incarnation;
	if (message_get_wanted(body, &wanted))
		body->bad = true;
	else
		regions_wanted(verbs->regions, from, &wanted);
}

static void on_regions_done(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
			    struct wire_r *body)
{
	struct verbs *verbs = arg;
	struct message_done done;

	(void)incarnation;
	if (message_get_done(body, &done))
		body->bad = true;
	else
		regions_done(verbs->regions, from, &done);
}

static void on_regions(void *arg, ramp_node_t from, ramp_incarnation_t incarnation,
		       struct wire_r *body)
{
	struct message_regions told;
	int rc = message_get_regions(body, &told);

	(void)incarnation;
	if (!rc)
		verbs_conn_regions(arg, from, &told);
	else if (rc == -EBADMSG)
		body->bad = true;
}

static void verbs_listen(struct verbs *verbs, void *arg)
{
	peers_on(verbs->peers, PROTO_VERBS_WANTED, arg ? on_verbs_wanted : NULL, arg);
	peers_on(verbs->peers, PROTO_VERBS_AT, arg ? on_verbs_at : NULL, arg);
	peers_on(verbs->peers, PROTO_REGIONS_WANTED, arg ? on_regions_wanted : NULL, arg);
	peers_on(verbs->peers, PROTO_REGIONS, arg ? on_regions : NULL, arg);
	peers_on(verbs->peers, PROTO_REGIONS_DONE, arg ? on_regions_done : NULL, arg);
}

/* ---- operations ---------------------------------------------------------------------------- */

static int verbs_export(struct tp *tp, const struct tp_export *export, struct ramp_err *err)
{
	struct verbs *verbs = verbs_of(tp);
	int rc = verbs->tcp->ops->export(verbs->tcp, export, err);

	if (!rc && regions_add(verbs->regions, export))
		log_warn("segment %llu: no memory to serve it over RDMA; it goes over TCP",
			 (unsigned long long)export->key.segment);
	return rc;
}

static void verbs_unexport(struct tp *tp, const struct tp_key *key)
{
	struct verbs *verbs = verbs_of(tp);

	regions_remove(verbs->regions, key);
	verbs->tcp->ops->unexport(verbs->tcp, key);
}

static void verbs_stats(struct tp *tp, struct tp_stats *stats)
{
	struct verbs *verbs = verbs_of(tp);
	struct verbs_node *node;

	verbs->tcp->ops->stats(verbs->tcp, stats);
	pthread_mutex_lock(&verbs->lock);
	LIST_FOREACH (node, &verbs->nodes, entry) {
		stats->read_bytes += atomic_load(&node->read_bytes);
		stats->reads += atomic_load(&node->reads);
	}
	pthread_mutex_unlock(&verbs->lock);
}

static bool verbs_peer(struct tp *tp, struct tp_peer *out)
{
	struct verbs *verbs = verbs_of(tp);
	struct verbs_node *node;

	*out = (struct tp_peer){.node = out->node};
	pthread_mutex_lock(&verbs->lock);
	LIST_FOREACH (node, &verbs->nodes, entry)
		if (node->node == out->node) {
			out->offers = node->at.port != 0;
			out->reading = atomic_load(&node->reading);
			out->read_bytes = atomic_load(&node->read_bytes);
			out->reads = atomic_load(&node->reads);
			out->again = atomic_load(&node->again);
			out->lost = atomic_load(&node->lost);
		}
	if (verbs->accept)
		out->read_by = accept_count(verbs->accept, out->node);
	pthread_mutex_unlock(&verbs->lock);
	regions_count(verbs->regions, out);
	return atomic_load(&verbs->has_device);
}

static void verbs_free(struct verbs *verbs)
{
	struct verbs_node *node;

	while ((node = LIST_FIRST(&verbs->nodes))) {
		LIST_REMOVE(node, entry);
		free(node);
	}
	if (verbs->wake >= 0)
		close(verbs->wake);
	pthread_cond_destroy(&verbs->dialed);
	pthread_mutex_destroy(&verbs->lock);
	free(verbs);
}

static void verbs_stop(struct tp *tp)
{
	struct verbs *verbs = verbs_of(tp);

	verbs_listen(verbs, NULL);
	atomic_store(&verbs->stop, true);
	(void)!write(verbs->wake, &(uint64_t){1}, sizeof(uint64_t));
	pthread_join(verbs->thread, NULL);
	regions_close(verbs->regions);
	verbs->tcp->ops->stop(verbs->tcp);
	if (queue_dials_end(verbs))
		verbs_free(verbs);
	else
		log_warn("the kernel still connects over RDMA to a node that is silent");
}

static const struct tp_ops verbs_ops = {
	.name = "verbs",
	.export = verbs_export,
	.unexport = verbs_unexport,
	.arrived = verbs_conn_arrived,
	.expect = verbs_conn_expect,
	.connect = verbs_conn_connect,
	.fd = verbs_conn_fd,
	.state = verbs_conn_state,
	.incarnation = verbs_conn_incarnation,
	.will_read = verbs_conn_will_read,
	.span = verbs_conn_span,
	.lands = verbs_conn_lands,
	.read = verbs_conn_read,
	.reap = verbs_conn_reap,
	.close = verbs_conn_close,
	.stop = verbs_stop,
	.stats = verbs_stats,
	.peer = verbs_peer,
};

static int verbs_start(struct verbs *verbs, struct ramp_err *err)
{
	sigset_t all, old;
	int rc;

	verbs->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (verbs->wake < 0)
		return ramp_err_sys(err, errno, "the thread of the RDMA device");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&verbs->thread, NULL, verbs_run, verbs);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return ramp_err_sys(err, rc, "the thread of the RDMA device");
	pthread_setname_np(verbs->thread, "rdma");
	return 0;
}

/* Looks for the device for the first time. */
static int verbs_first_device(struct verbs *verbs, bool must, struct ramp_err *err)
{
	int rc = verbs_find_device(verbs, err);

	if (!rc)
		return 0;
	if (must)
		return ramp_err_wrap(err, "transport=verbs");
	log_info("pages go over TCP: %s", err->text);
	return 0;
}

int verbs_open(struct peers *peers, struct tp *tcp, const char *address, bool must, struct tp **out,
	       struct ramp_err *err)
{
	struct verbs_all *all = calloc(1, sizeof(*all));
	struct verbs *verbs = &all->verbs;
	int rc;

	if (!all)
		return ramp_err_sys(err, ENOMEM, "RDMA transport");
	verbs->tp.ops = &verbs_ops;
	verbs->tcp = tcp;
	verbs->peers = peers;
	verbs->life = ramp_random64();
	verbs->wake = -1;
	pthread_mutex_init(&verbs->lock, NULL);
	pthread_cond_init(&verbs->dialed, NULL);
	rc = regions_open(peers, verbs->life, &verbs->regions, err);
	if (rc)
		goto err_free;
	/* An address that can't be resolved is peers' to complain of. */
	rc = device_resolve(address, &all->addresses, err);
	if (rc && !must)
		log_info("pages go over TCP: %s", err->text);
	else if (!rc)
		rc = verbs_first_device(verbs, must, err);
	if (rc && must)
		goto err_device;
	rc = verbs_start(verbs, err);
	if (rc)
		goto err_device;
	verbs_listen(verbs, verbs);
	*out = &verbs->tp;
	return 0;

err_device:
	if (verbs->device)
		verbs_forget_device(verbs, false);
	regions_close(verbs->regions);
err_free:
	verbs_free(verbs);
	return rc;
}
