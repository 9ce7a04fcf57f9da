/*
 * An RDMA device in this process. See fake_rdma.h.
 */
#include "fake_rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#undef ibv_reg_mr

struct fake_rdma fake_rdma;

struct fake_event {
	struct rdma_cm_event event; /* first */
	STAILQ_ENTRY(fake_event) entry;
	uint8_t data[196];
};

struct fake_channel {
	struct rdma_event_channel channel; /* first; an eventfd */
	STAILQ_HEAD(, fake_event) events;
};

struct fake_qp {
	struct ibv_qp qp; /* first */
	LIST_ENTRY(fake_qp) entry;
	struct fake_id *id;
	bool lost;
};

struct fake_id {
	struct rdma_cm_id id; /* first */
	LIST_ENTRY(fake_id) entry;
	struct fake_id *other; /* the other end's; NULL: none */
	uint16_t port;
	bool listens;
	uint8_t request[256];
	uint8_t request_len;
	bool knock, accepted; /* no node's own */
};

struct fake_cq {
	struct ibv_cq cq; /* first */
	struct ibv_wc wc[256];
	unsigned n;
	bool armed;
};

struct fake_mr {
	struct ibv_mr mr; /* first */
	LIST_ENTRY(fake_mr) entry;
	int access;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, fake_id) ids;
static LIST_HEAD(, fake_mr) mrs;
static LIST_HEAD(, fake_qp) qps;
static uint32_t next_key = 100;
static uint16_t next_port = 40000;
static atomic_int async_type; /* enum ibv_event_type */
static uint8_t overheard[56];
static uint16_t overheard_port;

static struct ibv_device device = {.name = "fake0"};
static struct ibv_context context = {.device = &device, .async_fd = -1, .cmd_fd = -1};

static void signal_fd(int fd)
{
	(void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
}

/* ---- the device ---- */

int __wrap_access(const char *path, int mode);
int __real_access(const char *path, int mode);

int __wrap_access(const char *path, int mode)
{
	if (strcmp(path, "/dev/infiniband/rdma_cm") != 0)
		return __real_access(path, mode);
	if (!atomic_load(&fake_rdma.no_device))
		return 0;
	errno = ENOENT;
	return -1;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof(struct ibv_device *));

	list[0] = &device;
	*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

struct ibv_context **rdma_get_devices(int *n)
{
	(void)n;
	return NULL;
}

void rdma_free_devices(struct ibv_context **list)
{
	(void)list;
}

const char *ibv_get_device_name(struct ibv_device *of)
{
	return of->name;
}

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *attr)
{
	(void)of;
	*attr = (struct ibv_device_attr){.max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16};
	return 0;
}

static bool is_null(int fd)
{
	char path[64], to[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, to, sizeof(to) - 1) > 0 && strcmp(to, "/dev/null") == 0;
}

bool fake_rdma_is_closed(void)
{
	return is_null(context.async_fd) && is_null(context.cmd_fd);
}

int ibv_get_async_event(struct ibv_context *of, struct ibv_async_event *event)
{
	uint64_t count;

	(void)of;
	if (read(context.async_fd, &count, sizeof(count)) < 0)
		return -1;
	event->event_type = (enum ibv_event_type)atomic_load(&async_type);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

void fake_rdma_async(enum ibv_event_type type)
{
	atomic_store(&async_type, (int)type);
	signal_fd(context.async_fd);
}

/* ---- memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *of)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = of;
	atomic_fetch_add(&fake_rdma.objects, 1);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	atomic_fetch_sub(&fake_rdma.objects, 1);
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	int code = atomic_load(access & IBV_ACCESS_REMOTE_READ ? &fake_rdma.reg_errno
							       : &fake_rdma.local_errno);
	struct fake_mr *mr;

	if (code) {
		errno = code;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	pthread_mutex_lock(&lock);
	mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	mr->mr.lkey = mr->mr.rkey = next_key++;
	mr->access = access;
	LIST_INSERT_HEAD(&mrs, mr, entry);
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&fake_rdma.objects, 1);
	if (access & IBV_ACCESS_REMOTE_READ)
		atomic_fetch_add(&fake_rdma.regions, 1);
	return &mr->mr;
}

int ibv_dereg_mr(struct ibv_mr *of)
{
	struct fake_mr *mr = (struct fake_mr *)of;

	pthread_mutex_lock(&lock);
	LIST_REMOVE(mr, entry);
	pthread_mutex_unlock(&lock);
	if (mr->access & IBV_ACCESS_REMOTE_READ)
		atomic_fetch_sub(&fake_rdma.regions, 1);
	atomic_fetch_sub(&fake_rdma.objects, 1);
	free(mr);
	return 0;
}

bool fake_rdma_region(uint64_t *address, uint32_t *rkey, uint32_t *len)
{
	struct fake_mr *mr;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (mr, &mrs, entry)
		if (mr->access & IBV_ACCESS_REMOTE_READ) {
			*address = (uintptr_t)mr->mr.addr;
			*rkey = mr->mr.rkey;
			*len = (uint32_t)mr->mr.length;
			break;
		}
	pthread_mutex_unlock(&lock);
	return mr != NULL;
}

/* ---- completions ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *of)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));

	channel->context = of;
	channel->fd = eventfd(0, EFD_CLOEXEC);
	atomic_fetch_add(&fake_rdma.objects, 1);
	return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	atomic_fetch_sub(&fake_rdma.objects, 1);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *of, int cqe, void *arg,
			     struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq = calloc(1, sizeof(*cq));

	(void)vector;
	cq->cq.context = of;
	cq->cq.cqe = cqe;
	cq->cq.cq_context = arg;
	cq->cq.channel = channel;
	atomic_fetch_add(&fake_rdma.objects, 1);
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	atomic_fetch_sub(&fake_rdma.objects, 1);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **arg)
{
	uint64_t count;

	*cq = NULL;
	*arg = NULL;
	return read(channel->fd, &count, sizeof(count)) < 0 ? -1 : 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	(void)cq;
	(void)n;
}

static int fake_poll_cq(struct ibv_cq *of, int max, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)of;
	unsigned n;

	pthread_mutex_lock(&lock);
	n = cq->n < (unsigned)max ? cq->n : (unsigned)max;
	memcpy(wc, cq->wc, n * sizeof(*wc));
	cq->n -= n;
	memmove(cq->wc, cq->wc + n, cq->n * sizeof(*wc));
	pthread_mutex_unlock(&lock);
	return (int)n;
}

static int fake_req_notify_cq(struct ibv_cq *of, int solicited)
{
	(void)solicited;
	pthread_mutex_lock(&lock);
	((struct fake_cq *)of)->armed = true;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* With the lock. */
static void fake_complete(struct fake_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	cq->wc[cq->n++] = (struct ibv_wc){.wr_id = wr_id, .status = status};
	if (cq->armed)
		signal_fd(cq->cq.channel->fd);
	cq->armed = false;
}

/* ---- READs ---- */

/* With the lock. Checks what an adapter checks at the source, and copies. */
static enum ibv_wc_status fake_copy(const struct fake_qp *qp, uint64_t address, uint32_t rkey,
				    void *dst, uint32_t len)
{
	const struct fake_qp *server;
	struct iovec to = {dst, len}, from = {(void *)(uintptr_t)address, len};
	struct fake_mr *mr;

	if (!qp->id->other)
		return IBV_WC_RETRY_EXC_ERR;
	server = (struct fake_qp *)qp->id->other->id.qp;
	LIST_FOREACH (mr, &mrs, entry)
		if (mr->mr.rkey == rkey && (mr->access & IBV_ACCESS_REMOTE_READ) && server &&
		    mr->mr.pd == server->qp.pd && address >= (uintptr_t)mr->mr.addr &&
		    address + len <= (uintptr_t)mr->mr.addr + mr->mr.length)
			break;
	if (!mr) {
		atomic_fetch_add(&fake_rdma.refused, 1);
		return IBV_WC_REM_ACCESS_ERR;
	}
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)len)
		return IBV_WC_REM_OP_ERR;
	atomic_fetch_add(&fake_rdma.reads, 1);
	return IBV_WC_SUCCESS;
}

static int fake_post_send(struct ibv_qp *of, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)of;
	int code = atomic_load(&fake_rdma.post_errno);
	enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;

	*bad = wr;
	if (code)
		return code;
	pthread_mutex_lock(&lock);
	if (!qp->lost) {
		status = (enum ibv_wc_status)atomic_exchange(&fake_rdma.status, 0);
		if (!status && !atomic_load(&fake_rdma.hold))
			status = fake_copy(qp, wr->wr.rdma.remote_addr, wr->wr.rdma.rkey,
					   (void *)(uintptr_t)wr->sg_list->addr,
					   wr->sg_list->length);
	}
	if (status || !atomic_load(&fake_rdma.hold))
		fake_complete((struct fake_cq *)of->send_cq, wr->wr_id, status);
	qp->lost = qp->lost || status;
	pthread_mutex_unlock(&lock);
	return 0;
}

enum ibv_wc_status fake_rdma_read(unsigned queue, uint64_t address, uint32_t rkey, void *dst,
				  uint32_t len)
{
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	struct fake_qp *qp;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (qp, &qps, entry)
		if (qp->qp.send_cq->channel && queue-- == 0) {
			status = fake_copy(qp, address, rkey, dst, len);
			break;
		}
	pthread_mutex_unlock(&lock);
	return status;
}

/* ---- connections ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct fake_channel *channel = calloc(1, sizeof(*channel));

	channel->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE | EFD_NONBLOCK);
	STAILQ_INIT(&channel->events);
	atomic_fetch_add(&fake_rdma.objects, 1);
	return &channel->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *of)
{
	struct fake_channel *channel = (struct fake_channel *)of;
	struct fake_event *event;

	while ((event = STAILQ_FIRST(&channel->events))) {
		STAILQ_REMOVE_HEAD(&channel->events, entry);
		free(event);
	}
	close(of->fd);
	free(channel);
	atomic_fetch_sub(&fake_rdma.objects, 1);
}

/* With the lock. */
static void fake_send(struct fake_id *to, enum rdma_cm_event_type type, int status,
		      const void *data, uint8_t len)
{
	struct fake_channel *channel = (struct fake_channel *)to->id.channel;
	struct fake_event *event = calloc(1, sizeof(*event));

	event->event.id = &to->id;
	event->event.event = type;
	event->event.status = status;
	if (len)
		memcpy(event->data, data, len);
	event->event.param.conn.private_data = len ? event->data : NULL;
	event->event.param.conn.private_data_len = len;
	event->event.param.conn.initiator_depth = 16;
	STAILQ_INSERT_TAIL(&channel->events, event, entry);
	signal_fd(channel->channel.fd);
}

int rdma_get_cm_event(struct rdma_event_channel *of, struct rdma_cm_event **out)
{
	struct fake_channel *channel = (struct fake_channel *)of;
	struct fake_event *event;
	uint64_t count;

	if (read(of->fd, &count, sizeof(count)) < 0)
		return -1;
	pthread_mutex_lock(&lock);
	event = STAILQ_FIRST(&channel->events);
	if (event)
		STAILQ_REMOVE_HEAD(&channel->events, entry);
	pthread_mutex_unlock(&lock);
	if (!event) {
		errno = EAGAIN;
		return -1;
	}
	*out = &event->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(event);
	return 0;
}

static struct fake_id *fake_new_id(struct rdma_event_channel *channel)
{
	struct fake_id *id = calloc(1, sizeof(*id));

	id->id.channel = channel;
	LIST_INSERT_HEAD(&ids, id, entry);
	atomic_fetch_add(&fake_rdma.objects, 1);
	return id;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *arg,
		   enum rdma_port_space space)
{
	(void)space;
	pthread_mutex_lock(&lock);
	*id = &fake_new_id(channel)->id;
	(*id)->context = arg;
	pthread_mutex_unlock(&lock);
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *of)
{
	struct fake_channel *channel = (struct fake_channel *)of->channel;
	struct fake_id *id = (struct fake_id *)of;
	struct fake_event *event, *next;

	pthread_mutex_lock(&lock);
	for (event = channel ? STAILQ_FIRST(&channel->events) : NULL; event; event = next) {
		next = STAILQ_NEXT(event, entry);
		if (event->event.id == of) {
			STAILQ_REMOVE(&channel->events, event, fake_event, entry);
			free(event);
		}
	}
	if (id->other)
		id->other->other = NULL;
	LIST_REMOVE(id, entry);
	pthread_mutex_unlock(&lock);
	free(id);
	atomic_fetch_sub(&fake_rdma.objects, 1);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *of, struct sockaddr *at)
{
	struct fake_id *id = (struct fake_id *)of;

	if (atomic_load(&fake_rdma.no_address)) {
		errno = ENODEV;
		return -1;
	}
	if (context.async_fd < 0) {
		context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		context.cmd_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		context.ops.poll_cq = fake_poll_cq;
		context.ops.req_notify_cq = fake_req_notify_cq;
		context.ops.post_send = fake_post_send;
	}
	of->verbs = &context;
	memcpy(&of->route.addr.src_addr, at, sizeof(struct sockaddr_in));
	pthread_mutex_lock(&lock);
	id->port = next_port++;
	pthread_mutex_unlock(&lock);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(((struct fake_id *)id)->port);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	unsigned taken = atomic_load(&fake_rdma.taken_ports);

	(void)backlog;
	if (taken) {
		atomic_store(&fake_rdma.taken_ports, taken - 1);
		errno = EADDRINUSE;
		return -1;
	}
	((struct fake_id *)id)->listens = true;
	return 0;
}

static __thread bool dials; /* this thread connects */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __real_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	uint64_t ms = dials && clock == CLOCK_MONOTONIC ? atomic_load(&fake_rdma.dial_ms) : 0;

	if (!ms)
		return __real_clock_gettime(clock, now);
	*now = (struct timespec){.tv_sec = (time_t)(ms / 1000)};
	return 0;
}

/* Sends `bad` where the test has set that, else `good`. */
static void fake_resolve(struct fake_id *id, enum rdma_cm_event_type good,
			 enum rdma_cm_event_type bad)
{
	const bool fails = atomic_load(&fake_rdma.answer) == (int)bad;

	pthread_mutex_lock(&lock);
	fake_send(id, fails ? bad : good, fails ? -EHOSTUNREACH : 0, NULL, 0);
	pthread_mutex_unlock(&lock);
}

int rdma_resolve_addr(struct rdma_cm_id *of, struct sockaddr *from, struct sockaddr *to, int ms)
{
	struct fake_id *id = (struct fake_id *)of;

	(void)from;
	(void)ms;
	dials = true;
	of->verbs = &context;
	id->port = ntohs(((struct sockaddr_in *)to)->sin_port);
	fake_resolve(id, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *of, int ms)
{
	(void)ms;
	fake_resolve((struct fake_id *)of, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR);
	return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	(void)id;
	(void)level;
	(void)name;
	(void)value;
	(void)len;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *of, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp = calloc(1, sizeof(*qp));

	qp->qp.context = &context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->id = (struct fake_id *)of;
	pthread_mutex_lock(&lock);
	of->qp = &qp->qp;
	LIST_INSERT_HEAD(&qps, qp, entry);
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&fake_rdma.objects, 1);
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *of)
{
	pthread_mutex_lock(&lock);
	LIST_REMOVE((struct fake_qp *)of->qp, entry);
	free(of->qp);
	of->qp = NULL;
	pthread_mutex_unlock(&lock);
	atomic_fetch_sub(&fake_rdma.objects, 1);
}

/* With the lock. Gives a listener a request of `from`. False: none listens there. */
static bool fake_request(struct fake_id *from, uint16_t port, const void *data, uint8_t len)
{
	struct fake_id *listener, *taken;

	LIST_FOREACH (listener, &ids, entry)
		if (listener->listens && listener->port == port)
			break;
	if (!listener)
		return false;
	taken = fake_new_id(listener->id.channel);
	taken->id.verbs = &context;
	taken->id.context = listener->id.context;
	taken->other = from;
	from->other = taken;
	fake_send(taken, RDMA_CM_EVENT_CONNECT_REQUEST, 0, data, len);
	return true;
}

int rdma_connect(struct rdma_cm_id *of, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)of;
	int code, answer = atomic_load(&fake_rdma.answer);

	atomic_fetch_add(&fake_rdma.connects, 1);
	while (atomic_load(&fake_rdma.block))
		usleep(1000);
	code = atomic_load(&fake_rdma.connect_errno);
	if (code) {
		errno = code;
		return -1;
	}
	pthread_mutex_lock(&lock);
	memcpy(overheard, param->private_data, sizeof(overheard));
	overheard_port = id->port;
	if (atomic_load(&fake_rdma.mute))
		atomic_fetch_sub(&fake_rdma.mute, 1);
	else if (answer && answer != RDMA_CM_EVENT_ADDR_ERROR &&
		 answer != RDMA_CM_EVENT_ROUTE_ERROR)
		fake_send(id, (enum rdma_cm_event_type)answer, -ETIMEDOUT, NULL, 0);
	else if (!fake_request(id, id->port, param->private_data, param->private_data_len))
		fake_send(id, RDMA_CM_EVENT_REJECTED, 8, NULL, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

uint16_t fake_rdma_overheard(uint8_t data[56])
{
	uint16_t port;

	pthread_mutex_lock(&lock);
	memcpy(data, overheard, sizeof(overheard));
	port = overheard_port;
	pthread_mutex_unlock(&lock);
	return port;
}

int rdma_accept(struct rdma_cm_id *of, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)of;
	uint8_t data[256];

	memcpy(data, param->private_data, param->private_data_len);
	data[30] = (uint8_t)(data[30] ^ atomic_load(&fake_rdma.forge));
	pthread_mutex_lock(&lock);
	if (id->other && id->other->knock)
		id->other->accepted = true;
	else if (id->other)
		fake_send(id->other, RDMA_CM_EVENT_ESTABLISHED, 0, data, param->private_data_len);
	fake_send(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

int rdma_reject(struct rdma_cm_id *of, const void *data, uint8_t len)
{
	struct fake_id *id = (struct fake_id *)of;

	pthread_mutex_lock(&lock);
	if (id->other && !id->other->knock)
		fake_send(id->other, RDMA_CM_EVENT_REJECTED, 28, data, len);
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&fake_rdma.rejected, 1);
	return 0;
}

bool fake_rdma_knock(uint16_t port, const void *data, uint8_t len)
{
	unsigned rejected = atomic_load(&fake_rdma.rejected);
	struct rdma_cm_id *of;
	struct fake_id *id;
	bool over = false, accepted = false;

	rdma_create_id(NULL, &of, NULL, RDMA_PS_TCP);
	id = (struct fake_id *)of;
	id->knock = true;
	pthread_mutex_lock(&lock);
	if (!fake_request(id, port, data, len))
		abort();
	pthread_mutex_unlock(&lock);
	for (int ms = 0; ms < 10000 && !over; ms++) {
		usleep(1000);
		pthread_mutex_lock(&lock);
		accepted = id->accepted;
		pthread_mutex_unlock(&lock);
		over = accepted || atomic_load(&fake_rdma.rejected) > rejected;
	}
	rdma_destroy_id(of);
	return accepted;
}

int rdma_disconnect(struct rdma_cm_id *of)
{
	struct fake_id *id = (struct fake_id *)of;

	pthread_mutex_lock(&lock);
	if (id->other && !id->other->knock && !atomic_load(&fake_rdma.silent))
		fake_send(id->other, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ---- events by the test ---- */

void fake_rdma_event(enum rdma_cm_event_type type)
{
	struct fake_qp *qp;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (qp, &qps, entry)
		if (qp->qp.send_cq->channel)
			fake_send(qp->id, type, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
}

void fake_rdma_remove(void)
{
	struct fake_id *id;

	atomic_store(&fake_rdma.no_device, true);
	pthread_mutex_lock(&lock);
	LIST_FOREACH (id, &ids, entry)
		if (id->listens || id->id.qp)
			fake_send(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
	pthread_mutex_unlock(&lock);
}
