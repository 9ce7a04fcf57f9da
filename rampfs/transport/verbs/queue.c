/*
 * A queue pair of the reader.
 *
 * Happy path: queue_connect resolves the source's address from this node's own, makes the queue pair
 * and its completion queue, connects with a proof as private data, and checks the answer's. queue_post
 * posts a READ; its completion makes the completion channel readable; queue_reap polls the completion
 * queue, and arms the channel only when that is empty.
 *
 * How it fails: each wait has the same bound. A completion that is not a success, and each event of
 * the connection manager that ends a connection, loses the queue pair: its user closes it, and then
 * nothing of it lands any more. READs may end without any completion (the device is gone, the source
 * died): so its user bounds their time, too.
 */
#include "queue.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define QUEUE_CONNECT_MS  5000
#define QUEUE_RESOLVE_MS  2000
#define QUEUE_LOOK_MS	  100 /* for `abandoned` */
#define QUEUE_ACK_TIMEOUT 14  /* 4.096 us * 2^14: 67 ms, eight times before a path is dead */
#define QUEUE_RETRIES	  7
#define QUEUE_READS_MAX	  16
#define QUEUE_SLOTS_BYTES (TP_QUEUE_MAX * QUEUE_SLOT_BYTES)
#define QUEUE_REAP_MAX	  16

struct queue {
	const struct queue_config *config; /* until it is connected */
	uint64_t deadline_ms;
	uint64_t life; /* of the source, proved */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	bool more;
	struct ramp_err lost; /* code 0: it is not */
	/* The buffer of short reads: a file, so that the kernel stores from it, and says where there is
	   no room. */
	int slots_fd;
	uint8_t *slots;
	struct ibv_mr *slots_mr;
	struct {
		struct ibv_mr *mr; /* NULL: it lands in the buffer */
		void *dst;
		uint32_t len; /* 0: free */
	} reads[TP_QUEUE_MAX];
};

/* ---- connecting ---------------------------------------------------------------------------- */

/* Waits for the next event, which the caller acknowledges. */
static int queue_event(struct queue *queue, struct rdma_cm_event **event, struct ramp_err *err)
{
	struct pollfd pollfd = {.fd = queue->channel->fd, .events = POLLIN};

	for (;;) {
		if (!rdma_get_cm_event(queue->channel, event))
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return ramp_err_sys(err, errno, "rdma_get_cm_event");
		if (atomic_load(queue->config->abandoned))
			return ramp_err_set(err, ECANCELED, "not needed any more");
		if (clock_ms() >= queue->deadline_ms)
			return ramp_err_set(err, ETIMEDOUT, "no answer within %d s",
					    QUEUE_CONNECT_MS / 1000);
		poll(&pollfd, 1, QUEUE_LOOK_MS);
	}
}

/* Says why an event is not the expected one. */
static int queue_wrong_event(const struct rdma_cm_event *event, struct ramp_err *err)
{
	const uint8_t *reason = event->param.conn.private_data;
	int code = event->status < 0 ? -event->status : ECONNREFUSED;

	if (event->event == RDMA_CM_EVENT_REJECTED && event->param.conn.private_data_len &&
	    reason && *reason && *reason < 134)
		return ramp_err_sys(err, *reason, "rejected");
	if (event->status < 0)
		return ramp_err_sys(err, code, "%s", rdma_event_str(event->event));
	return ramp_err_set(err, code, "%s, status %d", rdma_event_str(event->event),
			    event->status);
}

static int queue_expect(struct queue *queue, enum rdma_cm_event_type type,
			struct rdma_cm_event **event, struct ramp_err *err)
{
	int rc = queue_event(queue, event, err);

	if (rc)
		return rc;
	if ((*event)->event == type)
		return 0;
	rc = queue_wrong_event(*event, err);
	rdma_ack_cm_event(*event);
	return rc;
}

static int queue_wait(struct queue *queue, enum rdma_cm_event_type type, struct ramp_err *err)
{
	struct rdma_cm_event *event;
	int rc = queue_expect(queue, type, &event, err);

	if (!rc)
		rdma_ack_cm_event(event);
	return rc;
}

static int queue_resolve(struct queue *queue, struct ramp_err *err)
{
	struct sockaddr_storage from = queue->config->from, to = queue->config->to.address;
	int rc;

	queue->channel = rdma_create_event_channel();
	if (!queue->channel || fcntl(queue->channel->fd, F_SETFL, O_NONBLOCK))
		return ramp_err_sys(err, errno, "an event channel");
	if (rdma_create_id(queue->channel, &queue->id, NULL, RDMA_PS_TCP)) {
		queue->id = NULL;
		return ramp_err_sys(err, errno, "rdma_create_id");
	}
	if (from.ss_family != to.ss_family)
		return ramp_err_set(err, EAFNOSUPPORT, "its address is of another family");
	if (rdma_resolve_addr(queue->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
			      QUEUE_RESOLVE_MS))
		return ramp_err_sys(err, errno, "rdma_resolve_addr");
	rc = queue_wait(queue, RDMA_CM_EVENT_ADDR_RESOLVED, err);
	if (rc)
		return rc;
	if (rdma_resolve_route(queue->id, QUEUE_RESOLVE_MS))
		return ramp_err_sys(err, errno, "rdma_resolve_route");
	return queue_wait(queue, RDMA_CM_EVENT_ROUTE_RESOLVED, err);
}

static int queue_slots(struct queue *queue, struct ramp_err *err)
{
	queue->slots_fd = memfd_create("rampfs-rdma", MFD_CLOEXEC);
	if (queue->slots_fd < 0 || ftruncate(queue->slots_fd, QUEUE_SLOTS_BYTES))
		return ramp_err_sys(err, errno, "a buffer");
	queue->slots = mmap(NULL, QUEUE_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			    queue->slots_fd, 0);
	if (queue->slots == MAP_FAILED) {
		queue->slots = NULL;
		return ramp_err_sys(err, errno, "a buffer");
	}
	queue->slots_mr =
		ibv_reg_mr(queue->pd, queue->slots, QUEUE_SLOTS_BYTES, IBV_ACCESS_LOCAL_WRITE);
	return queue->slots_mr ? 0 : ramp_err_sys(err, errno, "a buffer can't be registered");
}

static int queue_make(struct queue *queue, struct ramp_err *err)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2 * TP_QUEUE_MAX,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	uint8_t timeout = QUEUE_ACK_TIMEOUT;

	queue->pd = ibv_alloc_pd(queue->id->verbs);
	if (!queue->pd)
		return ramp_err_sys(err, errno, "a protection domain");
	queue->completions = ibv_create_comp_channel(queue->id->verbs);
	if (!queue->completions || fcntl(queue->completions->fd, F_SETFL, O_NONBLOCK))
		return ramp_err_sys(err, errno, "a completion channel");
	queue->cq = ibv_create_cq(queue->id->verbs, 2 * TP_QUEUE_MAX, NULL, queue->completions, 0);
	if (!queue->cq || ibv_req_notify_cq(queue->cq, 0))
		return ramp_err_sys(err, errno, "a completion queue");
	attr.send_cq = attr.recv_cq = queue->cq;
	if (rdma_create_qp(queue->id, queue->pd, &attr))
		return ramp_err_sys(err, errno, "a queue pair");
	/* Where the device has no such option, its own time counts. */
	(void)rdma_set_option(queue->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
			      sizeof(timeout));
	return queue->config->class == TP_DEMAND ? queue_slots(queue, err) : 0;
}

/* Returns how many READs at a time both ends can. */
static uint8_t queue_reads(const struct queue *queue)
{
	struct ibv_device_attr attr;
	uint8_t reads = QUEUE_READS_MAX;

	if (!ibv_query_device(queue->id->verbs, &attr) && attr.max_qp_init_rd_atom > 0 &&
	    attr.max_qp_init_rd_atom < reads)
		reads = (uint8_t)attr.max_qp_init_rd_atom;
	return queue->config->to.reads && queue->config->to.reads < reads ? queue->config->to.reads
									  : reads;
}

/* Connects with a proof, and checks the answer's: before, no key is asked for. */
static int queue_prove(struct queue *queue, struct ramp_err *err)
{
	const struct queue_config *config = queue->config;
	const struct proof_request request = {.class = (uint8_t)config->class,
					      .node = config->self,
					      .life = config->life,
					      .counter = config->counter};
	uint8_t data[PROOF_BYTES];
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = sizeof(data),
		.responder_resources = 1,
		.initiator_depth = queue_reads(queue),
		.retry_count = QUEUE_RETRIES,
		.rnr_retry_count = QUEUE_RETRIES,
	};
	struct proof_answer answer;
	struct rdma_cm_event *event;
	int rc = proof_put_request(&request, config->key, config->to.challenge, data);

	if (rc)
		return ramp_err_sys(err, -rc, "a proof");
	if (rdma_connect(queue->id, &param))
		return ramp_err_sys(err, errno, "rdma_connect");
	rc = queue_expect(queue, RDMA_CM_EVENT_ESTABLISHED, &event, err);
	if (rc)
		return rc;
	rc = proof_get_answer(event->param.conn.private_data, event->param.conn.private_data_len,
			      data, config->key, config->to.challenge, &answer, err);
	rdma_ack_cm_event(event);
	if (!rc && answer.life != config->to.life)
		rc = ramp_err_set(err, ESTALE, "its daemon has started again");
	queue->life = answer.life;
	return rc;
}

uint64_t queue_life(const struct queue *queue)
{
	return queue->life;
}

static atomic_uint queues;

bool queue_any(void)
{
	return atomic_load(&queues) > 0;
}

int queue_connect(const struct queue_config *config, struct queue **out, struct ramp_err *err)
{
	struct queue *queue = calloc(1, sizeof(*queue));
	int rc;

	if (!queue)
		return ramp_err_sys(err, ENOMEM, "a queue pair");
	atomic_fetch_add(&queues, 1);
	queue->slots_fd = -1;
	queue->config = config;
	queue->deadline_ms = clock_ms() + QUEUE_CONNECT_MS;
	rc = queue_resolve(queue, err);
	if (!rc)
		rc = queue_make(queue, err);
	if (!rc)
		rc = queue_prove(queue, err);
	queue->config = NULL;
	if (rc) {
		queue_close(queue);
		return rc;
	}
	*out = queue;
	return 0;
}

static void queue_free_memory(struct queue *queue)
{
	for (unsigned i = 0; i < TP_QUEUE_MAX; i++)
		if (queue->reads[i].mr)
			ibv_dereg_mr(queue->reads[i].mr);
	if (queue->slots_mr)
		ibv_dereg_mr(queue->slots_mr);
	if (queue->slots)
		munmap(queue->slots, QUEUE_SLOTS_BYTES);
	if (queue->slots_fd >= 0)
		close(queue->slots_fd);
}

void queue_close(struct queue *queue)
{
	/* The queue pair first: after that nothing lands in the memory. */
	if (queue->id && queue->id->qp) {
		(void)rdma_disconnect(queue->id);
		rdma_destroy_qp(queue->id);
	}
	queue_free_memory(queue);
	if (queue->cq)
		ibv_destroy_cq(queue->cq);
	if (queue->completions)
		ibv_destroy_comp_channel(queue->completions);
	if (queue->pd)
		ibv_dealloc_pd(queue->pd);
	if (queue->id)
		rdma_destroy_id(queue->id);
	if (queue->channel)
		rdma_destroy_event_channel(queue->channel);
	free(queue);
	atomic_fetch_sub(&queues, 1);
}

/* ---- reading ------------------------------------------------------------------------------- */

void queue_fds(const struct queue *queue, int fds[2])
{
	fds[0] = queue->completions->fd;
	fds[1] = queue->channel->fd;
}

bool queue_has_slot(const struct queue *queue, size_t len)
{
	return queue->slots_mr && len <= QUEUE_SLOT_BYTES;
}

static void queue_read_over(struct queue *queue, unsigned slot)
{
	if (queue->reads[slot].mr)
		ibv_dereg_mr(queue->reads[slot].mr);
	queue->reads[slot].mr = NULL;
	queue->reads[slot].len = 0;
}

int queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
	       uint64_t offset, void *dst, uint32_t len)
{
	struct ibv_sge piece = {.addr = (uintptr_t)dst, .length = len};
	struct ibv_send_wr *bad, work = {
					 .wr_id = slot,
					 .sg_list = &piece,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_READ,
					 .send_flags = IBV_SEND_SIGNALED,
				 };
	int rc;

	work.wr.rdma.remote_addr = from->address + (offset - from->offset);
	work.wr.rdma.rkey = from->rkey;
	if (queue_has_slot(queue, len)) {
		piece.addr = (uintptr_t)queue->slots + (uintptr_t)slot * QUEUE_SLOT_BYTES;
		piece.lkey = queue->slots_mr->lkey;
	} else {
		queue->reads[slot].mr = ibv_reg_mr(queue->pd, dst, len, IBV_ACCESS_LOCAL_WRITE);
		if (!queue->reads[slot].mr)
			return -(errno ? errno : EIO);
		piece.lkey = queue->reads[slot].mr->lkey;
	}
	queue->reads[slot].dst = dst;
	queue->reads[slot].len = len;
	rc = ibv_post_send(queue->id->qp, &work, &bad);
	if (rc)
		queue_read_over(queue, slot);
	return rc < 0 ? rc : -rc;
}

/* Looks for events that end the connection. */
static int queue_look(struct queue *queue, struct ramp_err *err)
{
	struct rdma_cm_event *event;
	int rc = 0;

	while (!rc && !rdma_get_cm_event(queue->channel, &event)) {
		if (event->event != RDMA_CM_EVENT_ADDR_CHANGE)
			rc = ramp_err_set(err, ECONNRESET, "%s", rdma_event_str(event->event));
		rdma_ack_cm_event(event);
	}
	return rc;
}

/* Stores the bytes of a READ that landed in the buffer: as recv(2) does, the kernel stores them, and
   finds out where the store is full. */
static int queue_store(const struct queue *queue, unsigned slot)
{
	const uint32_t len = queue->reads[slot].len;
	uint32_t done = 0;

	while (done < len) {
		ssize_t n = pread(queue->slots_fd, (uint8_t *)queue->reads[slot].dst + done,
				  len - done, (off_t)slot * QUEUE_SLOT_BYTES + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EFAULT;
		done += (uint32_t)n;
	}
	return 0;
}

/* Says why a READ has failed. Where this end's adapter refuses what was posted, its lengths or its keys are
   wrong: no state of the network or of the source leads there. */
static int queue_failed(enum ibv_wc_status status, struct ramp_err *err)
{
	if (status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_LEN_ERR ||
	    status == IBV_WC_LOC_QP_OP_ERR)
		log_error("RDMA: the device refuses a READ that was posted here (%s): "
			  "this is a bug of rampfs; its pages come over TCP",
			  ibv_wc_status_str(status));
	return ramp_err_set(err, status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : EIO, "%s",
			    ibv_wc_status_str(status));
}

/* Takes one completion. 0: the READ is done. */
static int queue_complete(struct queue *queue, const struct ibv_wc *wc, struct ramp_err *err)
{
	unsigned slot = (unsigned)wc->wr_id;
	int rc = 0;

	if (wc->status != IBV_WC_SUCCESS)
		return queue_failed(wc->status, err);
	if (slot >= TP_QUEUE_MAX || !queue->reads[slot].len)
		return ramp_err_set(err, EPROTO, "a completion of no read");
	if (!queue->reads[slot].mr)
		rc = queue_store(queue, slot);
	queue_read_over(queue, slot);
	if (rc)
		ramp_err_set(err, -rc, "no room for a page");
	return rc;
}

/* Empties the completion channel and arms it. */
static int queue_arm(struct queue *queue, struct ramp_err *err)
{
	struct ibv_cq *cq;
	unsigned events = 0;
	void *arg;
	int rc;

	while (!ibv_get_cq_event(queue->completions, &cq, &arg))
		events++;
	if (events)
		ibv_ack_cq_events(queue->cq, events);
	rc = ibv_req_notify_cq(queue->cq, 0);
	return rc ? ramp_err_sys(err, rc < 0 ? -rc : rc, "ibv_req_notify_cq") : 0;
}

/* Takes completions up to the first that is none. */
static int queue_poll(struct queue *queue, unsigned *slots, int max)
{
	struct ibv_wc wc[QUEUE_REAP_MAX];
	int n = ibv_poll_cq(queue->cq, max < QUEUE_REAP_MAX ? max : QUEUE_REAP_MAX, wc);

	if (n < 0)
		ramp_err_set(&queue->lost, EIO, "ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		if (queue_complete(queue, &wc[i], &queue->lost))
			return i;
		slots[i] = (unsigned)wc[i].wr_id;
	}
	return n < 0 ? 0 : n;
}

int queue_reap(struct queue *queue, unsigned *slots, int max, struct ramp_err *err)
{
	int n = 0, after;

	if (!queue->lost.code) {
		n = queue_poll(queue, slots, max);
		queue->more = false;
		if (n == max || n == QUEUE_REAP_MAX)
			return n;
		/* With no completion it may be the other channel that is readable: that costs a system
		   call, for which no page that has come waits. */
		if (!queue->lost.code && n == 0)
			(void)queue_look(queue, &queue->lost);
		/* A completion from before it was armed makes no event. */
		if (!queue->lost.code && !queue_arm(queue, &queue->lost)) {
			after = queue_poll(queue, slots + n, max - n);
			n += after;
			queue->more = n == max || after == QUEUE_REAP_MAX;
		}
	}
	if (queue->lost.code && n) {
		queue->more = true; /* the next call says it */
		return n;
	}
	*err = queue->lost;
	return queue->lost.code ? -queue->lost.code : n;
}

bool queue_has_more(const struct queue *queue)
{
	return queue->more;
}
