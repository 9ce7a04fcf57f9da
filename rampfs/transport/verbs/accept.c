/*
 * The source's side of RDMA connections.
 *
 * Happy path: a CONNECT_REQUEST carries a node's proof in its private data. It is checked against the
 * key of the control connection and the device's challenge, and its counter must be higher than the
 * last one of that life and class. Only then memory is taken: a completion queue that stays empty, and a queue
 * pair in the node's domain. The answer proves this end.
 *
 * How it fails: a request that is not proved is rejected with a reason, and counted in the log (not
 * more than a few lines in ten seconds). A node has one connection of each class: a new one that
 * proves itself takes the place of the one before, of which the end may not have been heard.
 */
#include "accept.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/peers/peer.h"
#include "transport/transport.h"

#define ACCEPT_LOG_MS 2000u /* between two lines of rejected requests */

struct accepted {
	LIST_ENTRY(accepted) entry;
	ramp_node_t node;
	uint8_t class;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
};

/* The last counter of a node's life, for each class: its two connections are made side by side. */
struct accept_node {
	LIST_ENTRY(accept_node) entry;
	ramp_node_t node;
	uint64_t life, counters[2];
};

struct accept {
	struct peers *peers;
	struct device *device;
	uint64_t life, logged_ms;
	pthread_mutex_t lock;
	LIST_HEAD(, accepted) list; /* written by the verbs thread under lock */
	LIST_HEAD(, accept_node) nodes;
};

struct accept *accept_open(struct peers *peers, struct device *device, uint64_t life)
{
	struct accept *accept = calloc(1, sizeof(*accept));

	if (!accept)
		return NULL;
	accept->peers = peers;
	accept->device = device;
	accept->life = life;
	pthread_mutex_init(&accept->lock, NULL);
	return accept;
}

static void accepted_end(struct accept *accept, struct accepted *accepted)
{
	pthread_mutex_lock(&accept->lock);
	LIST_REMOVE(accepted, entry);
	pthread_mutex_unlock(&accept->lock);
	rdma_disconnect(accepted->id);
	if (accepted->id->qp)
		rdma_destroy_qp(accepted->id);
	if (accepted->cq)
		ibv_destroy_cq(accepted->cq);
	rdma_destroy_id(accepted->id);
	free(accepted);
}

/* Ends the connection of that node and class that was there before. */
static void accept_replace(struct accept *accept, const struct accepted *new)
{
	struct accepted *accepted, *next;

	for (accepted = LIST_FIRST(&accept->list); accepted; accepted = next) {
		next = LIST_NEXT(accepted, entry);
		if (accepted != new && accepted->node == new->node && accepted->class == new->class)
			accepted_end(accept, accepted);
	}
}

/* True: it was never used; it is from now on. */
static bool accept_counter_is_new(struct accept *accept, const struct proof_request *request)
{
	struct accept_node *node;

	LIST_FOREACH (node, &accept->nodes, entry)
		if (node->node == request->node)
			break;
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (!node)
			return false;
		node->node = request->node;
		LIST_INSERT_HEAD(&accept->nodes, node, entry);
	}
	if (node->life != request->life)
		memset(node->counters, 0, sizeof(node->counters));
	node->life = request->life;
	if (request->counter <= node->counters[request->class - 1])
		return false;
	node->counters[request->class - 1] = request->counter;
	return true;
}

static int accept_prove(struct accept *accept, const uint8_t *data, size_t len,
			struct proof_request *request, uint8_t key[HMAC_BYTES],
			struct ramp_err *err)
{
	int rc = proof_get_request(data, len, request, err);

	if (rc)
		return rc;
	rc = peer_key(accept->peers, request->node, PROOF_LABEL, key);
	if (rc)
		return ramp_err_set(err, EHOSTUNREACH, "node %u is not up", request->node);
	rc = proof_check_request(data, key, device_challenge(accept->device), err);
	if (rc)
		return rc;
	return accept_counter_is_new(accept, request)
		       ? 0
		       : ramp_err_set(err, ESTALE, "node %u: a request that came before",
				      request->node);
}

static int accepted_setup(struct accept *accept, struct accepted *accepted, struct ramp_err *err)
{
	struct ibv_pd *pd = device_domain(accept->device, accepted->node);
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};

	if (!pd)
		return ramp_err_sys(err, errno, "a protection domain");
	accepted->cq = ibv_create_cq(device_context(accept->device), 1, NULL, NULL, 0);
	if (!accepted->cq)
		return ramp_err_sys(err, errno, "a completion queue");
	attr.send_cq = attr.recv_cq = accepted->cq;
	if (rdma_create_qp(accepted->id, pd, &attr))
		return ramp_err_sys(err, errno, "a queue pair");
	return 0;
}

static int accept_answer(struct accept *accept, struct accepted *accepted, const uint8_t *data,
			 const uint8_t key[HMAC_BYTES], uint8_t depth, struct ramp_err *err)
{
	const struct proof_answer answer = {.reads = device_reads(accept->device),
					    .life = accept->life};
	uint8_t out[PROOF_BYTES];
	struct rdma_conn_param param = {
		.private_data = out,
		.private_data_len = sizeof(out),
		.responder_resources = depth < answer.reads ? depth : answer.reads,
		.initiator_depth = 1,
		.rnr_retry_count = 7,
	};
	int rc = proof_put_answer(&answer, data, key, device_challenge(accept->device), out);

	if (rc)
		return ramp_err_sys(err, -rc, "a proof");
	return rdma_accept(accepted->id, &param) ? ramp_err_sys(err, errno, "rdma_accept") : 0;
}

/* Takes a connection whose request is proved. */
static int accept_take(struct accept *accept, struct rdma_cm_id *id, const uint8_t *data,
		       const struct proof_request *request, const uint8_t key[HMAC_BYTES],
		       uint8_t depth, struct ramp_err *err)
{
	struct accepted *accepted = calloc(1, sizeof(*accepted));
	int rc;

	if (!accepted)
		return ramp_err_sys(err, ENOMEM, "an RDMA connection");
	accepted->id = id;
	accepted->node = request->node;
	accepted->class = request->class;
	rc = accepted_setup(accept, accepted, err);
	if (!rc)
		rc = accept_answer(accept, accepted, data, key, depth, err);
	if (rc) {
		if (id->qp)
			rdma_destroy_qp(id);
		if (accepted->cq)
			ibv_destroy_cq(accepted->cq);
		free(accepted);
		return rc;
	}
	id->context = accepted;
	pthread_mutex_lock(&accept->lock);
	LIST_INSERT_HEAD(&accept->list, accepted, entry);
	pthread_mutex_unlock(&accept->lock);
	accept_replace(accept, accepted);
	return 0;
}

/* The event is acknowledged by the caller before the id goes. */
static void accept_request(struct accept *accept, struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct rdma_cm_id *id = event->id;
	uint8_t data[PROOF_BYTES] = {0}, key[HMAC_BYTES], reason;
	uint8_t depth = param->initiator_depth ? param->initiator_depth : 1;
	struct proof_request request = {0};
	struct ramp_err err;
	int rc;

	if (param->private_data && param->private_data_len == PROOF_BYTES)
		memcpy(data, param->private_data, PROOF_BYTES);
	rc = accept_prove(accept, data, param->private_data ? param->private_data_len : 0, &request,
			  key, &err);
	rdma_ack_cm_event(event);
	id->context = NULL;
	if (!rc)
		rc = accept_take(accept, id, data, &request, key, depth, &err);
	hmac_wipe(key, sizeof(key));
	if (!rc) {
		log_debug("node %u reads over RDMA from here (%s)", request.node,
			  request.class == TP_DEMAND ? "demand" : "prefetch");
		return;
	}
	if (clock_ms() >= accept->logged_ms + ACCEPT_LOG_MS) {
		accept->logged_ms = clock_ms();
		log_warn("an RDMA connection is rejected: %s", err.text);
	}
	reason = (uint8_t)(err.code < 255 ? err.code : 255);
	rdma_reject(id, &reason, sizeof(reason));
	rdma_destroy_id(id);
}

bool accept_events(struct accept *accept)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(device_channel(accept->device), &event)) {
		struct accepted *accepted = event->id->context;
		enum rdma_cm_event_type type = event->event;

		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			accept_request(accept, event);
			continue;
		}
		rdma_ack_cm_event(event);
		switch (type) {
		case RDMA_CM_EVENT_DEVICE_REMOVAL:
			return false;
		case RDMA_CM_EVENT_ESTABLISHED:
		case RDMA_CM_EVENT_ADDR_CHANGE:
			break;
		default: /* DISCONNECTED, TIMEWAIT_EXIT, CONNECT_ERROR, UNREACHABLE, REJECTED */
			if (accepted) {
				log_debug("node %u reads over RDMA from here no more: %s",
					  accepted->node, rdma_event_str(type));
				accepted_end(accept, accepted);
			}
			break;
		}
	}
	return true;
}

unsigned accept_count(struct accept *accept, ramp_node_t node)
{
	struct accepted *accepted;
	unsigned n = 0;

	pthread_mutex_lock(&accept->lock);
	LIST_FOREACH (accepted, &accept->list, entry)
		n += accepted->node == node;
	pthread_mutex_unlock(&accept->lock);
	return n;
}

void accept_close(struct accept *accept)
{
	struct accepted *accepted;
	struct accept_node *node;

	while ((accepted = LIST_FIRST(&accept->list)))
		accepted_end(accept, accepted);
	while ((node = LIST_FIRST(&accept->nodes))) {
		LIST_REMOVE(node, entry);
		free(node);
	}
	pthread_mutex_destroy(&accept->lock);
	free(accept);
}
