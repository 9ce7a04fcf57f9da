#include "transport_node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>

static void *loop_main(void *arg)
{
	loop_run(arg);
	return NULL;
}

static void on_up(void *arg, ramp_node_t peer, ramp_incarnation_t incarnation, bool up)
{
	struct node *node = arg;

	if (up)
		atomic_store(&node->seen, incarnation);
	atomic_fetch_add(up ? &node->ups : &node->downs, 1);
	if (node->on_up)
		node->on_up(node, peer, up);
}

void node_start(struct node *node, ramp_node_t id, struct node_identity who)
{
	char address[64];
	struct peers_config config = {
		.self = id,
		.incarnation = who.incarnation,
		.instance = who.instance ? who.instance : 1000 + id,
		.listen_address = address,
		.up = on_up,
		.arg = node,
	};
	struct ramp_err err = {0};

	snprintf(address, sizeof(address), "%s:%u", who.host ? who.host : "127.0.0.1", who.port);
	memset(config.key, who.key, sizeof(config.key));
	memset(config.cluster_id, who.cluster, sizeof(config.cluster_id));
	node->id = id;
	ck_assert_int_eq(loop_open(&node->loop, &err), 0);
	config.loop = node->loop;
	ck_assert_msg(peers_open(&config, &node->peers, &err) == 0, "%s", err.text);
	if (node->handler)
		peers_on(node->peers, 1, node->handler, node->handler_arg);
	node->port = peers_port(node->peers);
	ck_assert_int_eq(pthread_create(&node->thread, NULL, loop_main, node->loop), 0);
}

unsigned node_streams = 1;
uint64_t node_limit_bytes_s;

void node_open_transport(struct node *node)
{
	const struct transport_config config = {
		.peers = node->peers,
		.loop = node->loop,
		.choice = TRANSPORT_AUTO,
		.address = "127.0.0.1",
		.streams = node_streams,
		.limit_bytes_s = node_limit_bytes_s,
	};
	struct ramp_err err = {0};

	ck_assert_msg(transport_open(&config, &node->tp, &err) == 0, "%s", err.text);
}

void node_stop(struct node *node)
{
	/* As cluster.c does: no message comes any more. */
	loop_stop(node->loop);
	pthread_join(node->thread, NULL);
	if (node->tp)
		node->tp->ops->stop(node->tp);
	peers_close(node->peers);
	loop_close(node->loop);
	node->tp = NULL;
}

struct call {
	loop_fn *fn;
	void *arg;
	sem_t done;
};

static void run_call(void *arg)
{
	struct call *call = arg;

	call->fn(call->arg);
	sem_post(&call->done);
}

void node_run(struct node *node, loop_fn *fn, void *arg)
{
	struct call call = {.fn = fn, .arg = arg};

	sem_init(&call.done, 0, 0);
	loop_post(node->loop, run_call, &call);
	while (sem_wait(&call.done) && errno == EINTR)
		;
	sem_destroy(&call.done);
}

struct knowing {
	struct node *node;
	ramp_node_t other;
	const char *address;
};

static void know(void *arg)
{
	struct knowing *k = arg;
	char name[16];

	snprintf(name, sizeof(name), "n%u", k->other);
	if (k->address)
		peers_set(k->node->peers, k->other, name, k->address);
	else
		peers_remove(k->node->peers, k->other);
}

void node_know_at(struct node *node, ramp_node_t other, const char *address)
{
	node_run(node, know, &(struct knowing){node, other, address});
}

void node_know(struct node *node, ramp_node_t other, uint16_t port)
{
	char address[32];

	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	node_know_at(node, other, address);
}

void node_forget(struct node *node, ramp_node_t other)
{
	node_run(node, know, &(struct knowing){node, other, NULL});
}

void nodes_join(struct node *a, struct node *b)
{
	/* The one that is dialed first, so that it finds a member. */
	if (a->id < b->id)
		node_know(b, a->id, a->port);
	node_know(a, b->id, b->port);
	if (a->id > b->id)
		node_know(b, a->id, a->port);
	wait_until(peer_up(a->peers, b->id) && peer_up(b->peers, a->id));
}

uint64_t node_peer_rejected(struct node *node, ramp_node_t other)
{
	struct peer_status status[16];
	size_t n = peers_status(node->peers, status, 16);

	for (size_t i = 0; i < n && i < 16; i++)
		if (status[i].node == other)
			return status[i].rejected;
	return 0;
}

/* Sockets. */

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

int raw_connect(uint16_t port)
{
	struct sockaddr_in to = loopback(port);
	struct timeval limit = {.tv_sec = 10};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
		close(fd);
		return -1;
	}
	return fd;
}

int raw_listen(uint16_t *port)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*port = ntohs(at.sin_port);
	return fd;
}

/* The man in the middle. */

#define MIDDLE_MAX 32

struct middle {
	pthread_t thread;
	int listener, stop[2];
	uint16_t port, to_port;
	middle_fn *fn;
	void *arg;
	unsigned int n;
	struct {
		int fds[2];	     /* [0] is the client's side */
		uint64_t offsets[2]; /* by way */
		unsigned int number;
	} conns[MIDDLE_MAX];
	unsigned int accepted;
};

static bool write_all(int fd, const uint8_t *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		bytes += n;
		len -= (size_t)n;
	}
	return true;
}

static void middle_accept(struct middle *middle)
{
	int fd = accept4(middle->listener, NULL, NULL, SOCK_CLOEXEC), to;

	if (fd < 0)
		return;
	to = raw_connect(middle->to_port);
	if (to < 0 || middle->n == MIDDLE_MAX) {
		close(fd);
		if (to >= 0)
			close(to);
		return;
	}
	middle->conns[middle->n].fds[0] = fd;
	middle->conns[middle->n].fds[1] = to;
	middle->conns[middle->n].offsets[0] = middle->conns[middle->n].offsets[1] = 0;
	middle->conns[middle->n].number = middle->accepted++;
	middle->n++;
}

/* Carries the bytes that have come one way. False: the connection ends. */
static bool middle_carry(struct middle *middle, unsigned int i, enum way way)
{
	uint8_t bytes[1 << 16];
	ssize_t n = recv(middle->conns[i].fds[way], bytes, sizeof(bytes) / 2, MSG_DONTWAIT);
	size_t len = (size_t)n;
	bool go = true;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	if (middle->fn)
		go = middle->fn(middle->arg, middle->conns[i].number, way,
				middle->conns[i].offsets[way], bytes, &len, sizeof(bytes));
	middle->conns[i].offsets[way] += (size_t)n;
	return write_all(middle->conns[i].fds[!way], bytes, len) && go;
}

/* Ends a connection without a reset, which may overtake bytes that were sent: reads the bytes that
   still come, until the other side ends, too. */
static void end_orderly(int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};
	uint8_t bytes[1 << 14];

	shutdown(fd, SHUT_WR);
	while (poll(&pollfd, 1, 2000) == 1 && recv(fd, bytes, sizeof(bytes), 0) > 0)
		;
	close(fd);
}

static void middle_end(struct middle *middle, unsigned int i)
{
	end_orderly(middle->conns[i].fds[0]);
	end_orderly(middle->conns[i].fds[1]);
	middle->conns[i] = middle->conns[--middle->n];
}

static void *middle_main(void *arg)
{
	struct middle *middle = arg;

	for (;;) {
		struct pollfd fds[2 + 2 * MIDDLE_MAX];
		unsigned int n = middle->n;

		fds[0] = (struct pollfd){.fd = middle->stop[0], .events = POLLIN};
		fds[1] = (struct pollfd){.fd = middle->listener, .events = POLLIN};
		for (unsigned int i = 0; i < n; i++)
			for (int way = 0; way < 2; way++)
				fds[2 + 2 * i + (unsigned int)way] = (struct pollfd){
					.fd = middle->conns[i].fds[way], .events = POLLIN};
		poll(fds, 2 + 2 * n, -1);
		if (fds[0].revents)
			break;
		/* From the last to the first: middle_end fills a gap with the last. */
		for (unsigned int i = n; i-- > 0;)
			for (unsigned int way = 0; way < 2; way++)
				if (fds[2 + 2 * i + way].revents &&
				    !middle_carry(middle, i, (enum way)way)) {
					middle_end(middle, i);
					break;
				}
		if (fds[1].revents)
			middle_accept(middle);
	}
	return NULL;
}

struct middle *middle_start(uint16_t to_port, middle_fn *fn, void *arg)
{
	struct middle *middle = calloc(1, sizeof(*middle));

	ck_assert_ptr_nonnull(middle);
	middle->to_port = to_port;
	middle->fn = fn;
	middle->arg = arg;
	middle->listener = raw_listen(&middle->port);
	ck_assert_int_eq(pipe(middle->stop), 0);
	ck_assert_int_eq(pthread_create(&middle->thread, NULL, middle_main, middle), 0);
	return middle;
}

uint16_t middle_port(struct middle *middle)
{
	return middle->port;
}

void middle_stop(struct middle *middle)
{
	ck_assert_int_eq(write(middle->stop[1], "", 1), 1);
	pthread_join(middle->thread, NULL);
	while (middle->n)
		middle_end(middle, 0);
	close(middle->listener);
	close(middle->stop[0]);
	close(middle->stop[1]);
	free(middle);
}
