/*
 * A data connection of the reader: TCP, and a queue pair beside it.
 *
 * Happy path: TCP connects and proves itself as ever. Beside it a thread connects a queue pair
 * (queue_dial.c), and the source is asked for the regions of each key that is read here, or will be. From the moment that a
 * region covers a read's pages the read is one RDMA READ; all else goes over TCP: pages before any
 * key has come, holes, chunks that could not be registered. pull/ asks verbs_conn_span how far one read may
 * go, so no read is of both.
 *
 * How it fails: whatever ends the queue pair (an error completion, an event of the connection
 * manager, 2 s without a completion, the device removed) ends it alone. It is destroyed first, so that
 * nothing lands any more; then its reads are made again over TCP, all regions are forgotten, and a new
 * queue pair is tried after 50 ms, then twice as long, up to 2 s. Where TCP fails the connection has
 * failed, and so it has where a page found no room: what that means is pull's business, as with TCP.
 */
#include "verbs_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "keys.h"
#include "queue.h"
#include "queue_dial.h"
#include "transport/peers/peer.h"
#include "transport/proto.h"

#define CONN_RETRY_MIN_MS 50u
#define CONN_RETRY_MAX_MS 2000u
#define CONN_SOON_MS	  5u	/* a queue pair that is made ahead is almost there */
#define CONN_STALL_MS	  2000u /* READs under way, and none has completed */

/* Regions that have been told, and are not in `keys` yet. */
struct verbs_conn_mail {
	STAILQ_ENTRY(verbs_conn_mail) entry;
	struct message_regions told;
};

struct verbs_conn_pending {
	bool used, by_queue;
	struct tp_read read;
};

struct verbs_conn {
	struct tp_conn base;
	struct verbs *verbs;
	struct tp_conn *tcp;
	struct verbs_node *node;
	enum tp_class class;
	LIST_ENTRY(verbs_conn) entry; /* verbs->conns; not of a plain one */

	int epoll; /* of TCP, queue pair and wake; -1: plain, this is TCP alone */
	int wake;
	int tcp_fd;
	uint32_t tcp_events;

	struct queue *queue;	 /* NULL: none */
	struct queue_dial *dial; /* NULL: none */
	uint64_t removals;	 /* verbs->removals, when the queue pair was made */
	uint64_t try_ms;
	uint32_t after_ms;
	bool told_failure;
	uint64_t progress_ms; /* when a READ has completed, or the first was posted */
	unsigned n_queue, n_tcp;
	struct verbs_conn_pending pending[TP_QUEUE_MAX];
	struct ramp_err failed; /* code 0: it has not */

	struct keys keys;
	uint64_t ask_ms; /* when to look which keys are to be asked for */

	/* The queue pair's, and its source's. 0: none. Protected by verbs->lock. */
	uint64_t connection, life;
	STAILQ_HEAD(, verbs_conn_mail) mail; /* protected by verbs->lock */
	atomic_bool has_mail;
};

static struct verbs_conn *verbs_conn_of(struct tp_conn *base)
{
	return (struct verbs_conn *)base;
}

static bool verbs_conn_is_plain(const struct verbs_conn *conn)
{
	return conn->epoll < 0;
}

static const struct tp_ops *verbs_conn_tcp(const struct verbs_conn *conn)
{
	return conn->tcp->tp->ops;
}

/* ---- beginning and ending ------------------------------------------------------------------ */

static int verbs_conn_watch(struct verbs_conn *conn, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return epoll_ctl(conn->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static void verbs_conn_set_connection(struct verbs_conn *conn, uint64_t connection, uint64_t life)
{
	pthread_mutex_lock(&conn->verbs->lock);
	conn->connection = connection;
	conn->life = life;
	pthread_mutex_unlock(&conn->verbs->lock);
}

static struct verbs_conn_mail *verbs_conn_take_mail(struct verbs_conn *conn)
{
	struct verbs_conn_mail *mail;

	pthread_mutex_lock(&conn->verbs->lock);
	mail = STAILQ_FIRST(&conn->mail);
	if (mail)
		STAILQ_REMOVE_HEAD(&conn->mail, entry);
	pthread_mutex_unlock(&conn->verbs->lock);
	return mail;
}

static void verbs_conn_mail_free(struct verbs_conn_mail *mail)
{
	free(mail->told.regions);
	free(mail);
}

/* Ends the queue pair; when this returns nothing of it lands any more. */
static void verbs_conn_drop_queue(struct verbs_conn *conn)
{
	int fds[2];

	queue_fds(conn->queue, fds);
	for (int i = 0; i < 2; i++)
		epoll_ctl(conn->epoll, EPOLL_CTL_DEL, fds[i], NULL);
	queue_close(conn->queue);
	conn->queue = NULL;
	atomic_fetch_sub(&conn->node->reading, 1);
	verbs_conn_set_connection(conn, 0, 0);
	keys_forget(&conn->keys);
}

static void verbs_conn_drop_dial(struct verbs_conn *conn)
{
	epoll_ctl(conn->epoll, EPOLL_CTL_DEL, queue_dial_fd(conn->dial), NULL);
}

void verbs_conn_close(struct tp_conn *base)
{
	struct verbs_conn *conn = verbs_conn_of(base);
	struct verbs_conn_mail *mail;

	if (!verbs_conn_is_plain(conn)) {
		pthread_mutex_lock(&conn->verbs->lock);
		LIST_REMOVE(conn, entry);
		pthread_mutex_unlock(&conn->verbs->lock);
		if (conn->dial) {
			verbs_conn_drop_dial(conn);
			queue_dial_abandon(conn->dial);
		}
		if (conn->queue)
			verbs_conn_drop_queue(conn);
		while ((mail = verbs_conn_take_mail(conn)))
			verbs_conn_mail_free(mail);
		keys_free(&conn->keys);
		close(conn->epoll);
		close(conn->wake);
	}
	verbs_conn_tcp(conn)->close(conn->tcp);
	free(conn);
}

/* ---- the queue pair ------------------------------------------------------------------------ */

static int verbs_conn_read_by_tcp(struct verbs_conn *conn, unsigned slot)
{
	struct tp_read read = conn->pending[slot].read;

	read.cookie = slot;
	return verbs_conn_tcp(conn)->read(conn->tcp, &read);
}

/* Makes all reads of the queue pair again over TCP. A read that TCP does not take any more is lost with the connection, which then
   has failed. */
static void verbs_conn_read_again(struct verbs_conn *conn)
{
	for (unsigned i = 0; i < TP_QUEUE_MAX; i++) {
		if (!conn->pending[i].used || !conn->pending[i].by_queue)
			continue;
		conn->pending[i].by_queue = false;
		conn->n_queue--;
		conn->n_tcp++;
		atomic_fetch_add(&conn->node->again, 1);
		if (verbs_conn_read_by_tcp(conn, i) && !conn->failed.code)
			ramp_err_set(&conn->failed, ENOTCONN, "the data connection is lost");
	}
}

static void verbs_conn_retry_later(struct verbs_conn *conn, uint64_t now)
{
	conn->try_ms = now + conn->after_ms;
	conn->after_ms =
		conn->after_ms * 2 < CONN_RETRY_MAX_MS ? conn->after_ms * 2 : CONN_RETRY_MAX_MS;
}

static void verbs_conn_queue_lost(struct verbs_conn *conn, const struct ramp_err *why, uint64_t now)
{
	log_info("reading from node %u over RDMA: %s; over TCP until it is connected again",
		 conn->node->node, why->text);
	if (conn->n_queue)
		atomic_fetch_add(&conn->node->lost, 1);
	verbs_conn_drop_queue(conn);
	if (why->code == EFAULT)
		conn->failed = *why;
	else
		verbs_conn_read_again(conn);
	verbs_conn_retry_later(conn, now);
}

static void verbs_conn_queue_up(struct verbs_conn *conn, struct queue *queue)
{
	int fds[2];

	conn->queue = queue;
	atomic_fetch_add(&conn->node->reading, 1);
	conn->told_failure = false;
	queue_fds(queue, fds);
	/* Without a descriptor its owner looks all the same, a few times a second. */
	for (int i = 0; i < 2; i++)
		(void)verbs_conn_watch(conn, fds[i]);
	verbs_conn_set_connection(conn, ramp_random64(), queue_life(queue));
	conn->ask_ms = 0;
	log_debug("reading from node %u over RDMA (%s)", conn->node->node,
		  conn->class == TP_DEMAND ? "demand" : "prefetch");
}

static void verbs_conn_dialed(struct verbs_conn *conn, uint64_t now)
{
	struct queue *queue = NULL;
	struct ramp_err err;
	int rc;

	verbs_conn_drop_dial(conn);
	rc = queue_dial_take(conn->dial, &queue, &err);
	conn->dial = NULL;
	if (!rc) {
		verbs_conn_queue_up(conn, queue);
		return;
	}
	log_line(conn->told_failure ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
		 "no RDMA connection to node %u: %s", conn->node->node, err.text);
	conn->told_failure = true;
	/* Where it listens may be another place by now: it is asked again. */
	pthread_mutex_lock(&conn->verbs->lock);
	conn->node->at.port = 0;
	pthread_mutex_unlock(&conn->verbs->lock);
	verbs_conn_retry_later(conn, now);
}

/* Takes the queue pair that was made ahead, or begins to connect one. */
static void verbs_conn_dial(struct verbs_conn *conn, uint64_t now)
{
	bool soon = false;
	struct queue *queue;

	conn->removals = atomic_load(&conn->verbs->removals);
	queue = queue_dial_ready(conn->verbs, conn->node, conn->class, &soon);
	if (queue) {
		verbs_conn_queue_up(conn, queue);
		return;
	}
	if (!soon && atomic_load(&conn->verbs->has_device))
		conn->dial = queue_dial_start(conn->verbs, conn->node, conn->class);
	if (!conn->dial)
		conn->try_ms = now + (soon ? CONN_SOON_MS : CONN_RETRY_MIN_MS);
	else
		(void)verbs_conn_watch(conn, queue_dial_fd(conn->dial));
}

/* Makes it more than TCP. Where that fails it is TCP. */
static void verbs_conn_widen(struct verbs_conn *conn)
{
	struct verbs *verbs = conn->verbs;

	conn->epoll = epoll_create1(EPOLL_CLOEXEC);
	conn->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (conn->epoll < 0 || conn->wake < 0 || verbs_conn_watch(conn, conn->wake)) {
		if (conn->epoll >= 0)
			close(conn->epoll);
		if (conn->wake >= 0)
			close(conn->wake);
		conn->epoll = conn->wake = -1;
		return;
	}
	pthread_mutex_lock(&verbs->lock);
	LIST_INSERT_HEAD(&verbs->conns, conn, entry);
	pthread_mutex_unlock(&verbs->lock);
	/* Beside TCP, which proves the incarnation before anything is read. */
	verbs_conn_dial(conn, clock_ms());
}

int verbs_conn_connect(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
		       enum tp_class class, struct tp_conn **out, struct ramp_err *err)
{
	struct verbs *verbs = (struct verbs *)tp;
	struct verbs_conn *conn = calloc(1, sizeof(*conn));
	int rc;

	if (!conn)
		return ramp_err_sys(err, ENOMEM, "data connection");
	rc = verbs->tcp->ops->connect(verbs->tcp, node, incarnation, class, &conn->tcp, err);
	if (rc) {
		free(conn);
		return rc;
	}
	conn->base.tp = tp;
	conn->verbs = verbs;
	conn->class = class;
	conn->epoll = conn->wake = conn->tcp_fd = -1;
	conn->after_ms = CONN_RETRY_MIN_MS;
	STAILQ_INIT(&conn->mail);
	pthread_mutex_lock(&verbs->lock);
	conn->node = verbs_node_of(verbs, node);
	pthread_mutex_unlock(&verbs->lock);
	if (conn->node && atomic_load(&verbs->has_device))
		verbs_conn_widen(conn);
	*out = &conn->base;
	return 0;
}

void verbs_conn_expect(struct tp *tp, ramp_node_t number)
{
	struct verbs *verbs = (struct verbs *)tp;
	struct verbs_node *node;

	pthread_mutex_lock(&verbs->lock);
	node = verbs_node_of(verbs, number);
	pthread_mutex_unlock(&verbs->lock);
	if (node && atomic_load(&verbs->has_device))
		queue_dial_ahead(verbs, node);
}

/* ---- regions ------------------------------------------------------------------------------- */

/* Asks the source for the regions of each key whose time has come. */
static void verbs_conn_ask(struct verbs_conn *conn, uint64_t now)
{
	struct message_wanted wanted = {.connection = conn->connection,
					.class = (uint8_t)conn->class};
	uint8_t body[MESSAGE_SMALL_BYTES];
	uint64_t next = UINT64_MAX;
	struct wire_w w;

	for (size_t i = 0; i < KEYS_MAX; i++) {
		struct keys_entry *entry = &conn->keys.entries[i];

		if (!entry->used)
			continue;
		if (entry->ask_ms <= now) {
			wanted.key = entry->key;
			wire_w_init(&w, body, sizeof(body));
			message_put_wanted(&w, &wanted);
			(void)peer_send(conn->verbs->peers, conn->node->node, PROTO_REGIONS_WANTED,
					body, w.len);
			keys_asked(entry, now);
		}
		next = entry->ask_ms < next ? entry->ask_ms : next;
	}
	conn->ask_ms = next;
}

static void verbs_conn_read_mail(struct verbs_conn *conn)
{
	struct keys_entry *entry;
	struct verbs_conn_mail *mail;

	atomic_store(&conn->has_mail, false);
	while ((mail = verbs_conn_take_mail(conn))) {
		entry = mail->told.connection == conn->connection && conn->queue
				? keys_find(&conn->keys, &mail->told.key)
				: NULL;
		if (entry && !keys_told(entry, &mail->told))
			log_debug("regions of segment %llu came out of turn: asked for again",
				  (unsigned long long)mail->told.key.segment);
		verbs_conn_mail_free(mail);
	}
}

void verbs_conn_regions(struct verbs *verbs, ramp_node_t from, struct message_regions *told)
{
	struct verbs_conn_mail *mail = malloc(sizeof(*mail));
	struct verbs_conn *conn;

	if (mail)
		mail->told = *told;
	pthread_mutex_lock(&verbs->lock);
	LIST_FOREACH (conn, &verbs->conns, entry)
		if (mail && conn->node->node == from && conn->connection == told->connection &&
		    conn->life == told->life) {
			STAILQ_INSERT_TAIL(&conn->mail, mail, entry);
			atomic_store(&conn->has_mail, true);
			(void)!write(conn->wake, &(uint64_t){1}, sizeof(uint64_t));
			told->regions = NULL;
			mail = NULL;
		}
	pthread_mutex_unlock(&verbs->lock);
	free(mail);
	free(told->regions);
	told->regions = NULL;
}

void verbs_conns_wake(struct verbs *verbs)
{
	struct verbs_conn *conn;

	pthread_mutex_lock(&verbs->lock);
	LIST_FOREACH (conn, &verbs->conns, entry)
		(void)!write(conn->wake, &(uint64_t){1}, sizeof(uint64_t));
	pthread_mutex_unlock(&verbs->lock);
}

/* Continues with the queue pair and the keys. */
static void verbs_conn_step(struct verbs_conn *conn)
{
	uint64_t now = clock_ms();

	if (conn->dial && queue_dial_is_over(conn->dial))
		verbs_conn_dialed(conn, now);
	if (conn->queue && conn->removals != atomic_load(&conn->verbs->removals))
		verbs_conn_queue_lost(conn, &(struct ramp_err){ENODEV, "the device is gone"}, now);
	if (conn->queue && conn->n_queue && now > conn->progress_ms + CONN_STALL_MS)
		verbs_conn_queue_lost(conn, &(struct ramp_err){ETIMEDOUT, "no READ completes"},
				      now);
	if (!conn->queue && !conn->dial && now >= conn->try_ms)
		verbs_conn_dial(conn, now);
	if (atomic_load(&conn->has_mail))
		verbs_conn_read_mail(conn);
	if (conn->queue && now >= conn->ask_ms)
		verbs_conn_ask(conn, now);
}

/* ---- operations ---------------------------------------------------------------------------- */

int verbs_conn_fd(struct tp_conn *base, uint32_t *events)
{
	struct verbs_conn *conn = verbs_conn_of(base);
	struct epoll_event event = {0};
	uint32_t wanted;
	int fd = verbs_conn_tcp(conn)->fd(conn->tcp, &wanted);

	if (verbs_conn_is_plain(conn)) {
		*events = wanted;
		return fd;
	}
	event.events = wanted;
	if ((conn->tcp_fd != fd || conn->tcp_events != wanted) &&
	    !epoll_ctl(conn->epoll, conn->tcp_fd == fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
		       &event)) {
		conn->tcp_fd = fd;
		conn->tcp_events = wanted;
	}
	*events = EPOLLIN;
	return conn->epoll;
}

/* Hears of the queue pair and the regions while no read can be posted yet. */
static void verbs_conn_listen(struct verbs_conn *conn)
{
	struct ramp_err err;
	uint64_t count;
	unsigned slot;

	(void)!read(conn->wake, &count, sizeof(count));
	if (conn->queue && queue_reap(conn->queue, &slot, 1, &err) < 0)
		verbs_conn_queue_lost(conn, &err, clock_ms());
}

enum tp_state verbs_conn_state(struct tp_conn *base, struct ramp_err *err)
{
	struct verbs_conn *conn = verbs_conn_of(base);
	enum tp_state state = verbs_conn_tcp(conn)->state(conn->tcp, err);

	if (verbs_conn_is_plain(conn) || state == TP_FAILED)
		return state;
	if (conn->failed.code) {
		if (err)
			*err = conn->failed;
		return TP_FAILED;
	}
	if (state == TP_CONNECTING)
		verbs_conn_listen(conn);
	verbs_conn_step(conn);
	return state;
}

ramp_incarnation_t verbs_conn_incarnation(struct tp_conn *base)
{
	struct verbs_conn *conn = verbs_conn_of(base);

	return verbs_conn_tcp(conn)->incarnation(conn->tcp);
}

size_t verbs_conn_span(struct tp_conn *base, const struct tp_key *key, uint64_t offset, size_t len)
{
	struct verbs_conn *conn = verbs_conn_of(base);
	const struct message_region *region;
	const struct keys_entry *entry;
	size_t span = len;

	if (!conn->queue)
		return len;
	entry = keys_find(&conn->keys, key);
	if (!entry)
		return len;
	region = keys_cover(entry, offset, len, &span);
	if (!region)
		return span;
	if (region->offset + region->len - offset < len)
		len = (size_t)(region->offset + region->len - offset);
	/* A read that fits into the queue pair's buffer needs no registration. */
	return conn->class == TP_DEMAND && len > QUEUE_SLOT_BYTES ? QUEUE_SLOT_BYTES : len;
}

/* Returns the region that covers all of a read, or NULL. */
static const struct message_region *
verbs_conn_region(struct verbs_conn *conn, const struct tp_key *key, uint64_t offset, uint32_t len)
{
	const struct keys_entry *entry = conn->queue ? keys_find(&conn->keys, key) : NULL;
	const struct message_region *region;
	size_t gap;

	region = entry ? keys_cover(entry, offset, len, &gap) : NULL;
	return region && region->offset + region->len - offset >= len ? region : NULL;
}

bool verbs_conn_lands(struct tp_conn *base, const struct tp_key *key, uint64_t offset)
{
	struct verbs_conn *conn = verbs_conn_of(base);

	return verbs_conn_region(conn, key, offset, RAMP_PAGE_BYTES) != NULL;
}

/* Posts a READ of a pending read. False: it is TCP's. */
static bool verbs_conn_read_by_queue(struct verbs_conn *conn, unsigned slot)
{
	const struct tp_read *read = &conn->pending[slot].read;
	const struct message_region *region =
		verbs_conn_region(conn, &read->key, read->offset, read->len);

	if (!region || queue_post(conn->queue, slot, region, read->offset, read->dst, read->len))
		return false;
	conn->pending[slot].by_queue = true;
	if (conn->n_queue++ == 0)
		conn->progress_ms = clock_ms();
	return true;
}

static bool verbs_conn_is_valid(const struct tp_read *read)
{
	return read->len > 0 && read->len <= TP_READ_MAX_BYTES &&
	       read->len % RAMP_PAGE_BYTES == 0 && read->offset % RAMP_PAGE_BYTES == 0 &&
	       read->offset <= UINT64_MAX - read->len && read->dst;
}

void verbs_conn_will_read(struct tp_conn *base, const struct tp_key *key)
{
	struct verbs_conn *conn = verbs_conn_of(base);

	if (verbs_conn_is_plain(conn) || keys_find(&conn->keys, key))
		return;
	keys_add(&conn->keys, key);
	conn->ask_ms = 0;
	if (conn->queue)
		verbs_conn_ask(conn, clock_ms());
}

int verbs_conn_read(struct tp_conn *base, const struct tp_read *read)
{
	struct verbs_conn *conn = verbs_conn_of(base);
	unsigned slot = 0;
	int rc;

	if (verbs_conn_is_plain(conn))
		return verbs_conn_tcp(conn)->read(conn->tcp, read);
	if (conn->failed.code)
		return -ENOTCONN;
	if (!verbs_conn_is_valid(read))
		return -EINVAL;
	if (conn->n_queue + conn->n_tcp == TP_QUEUE_MAX)
		return -EAGAIN;
	while (conn->pending[slot].used)
		slot++;
	conn->pending[slot] = (struct verbs_conn_pending){.read = *read};
	if (verbs_conn_read_by_queue(conn, slot)) {
		conn->pending[slot].used = true;
		return 0;
	}
	rc = verbs_conn_read_by_tcp(conn, slot);
	if (rc)
		return rc;
	conn->pending[slot].used = true;
	conn->n_tcp++;
	verbs_conn_will_read(base, &read->key);
	return 0;
}

void verbs_conn_arrived(struct tp_conn *base, const struct tp_key *key, uint64_t upto)
{
	const struct message_done done = {.key = *key, .upto = upto};
	struct verbs_conn *conn = verbs_conn_of(base);
	uint8_t body[MESSAGE_SMALL_BYTES];
	struct wire_w w;

	if (!conn->queue || !keys_find(&conn->keys, key))
		return;
	wire_w_init(&w, body, sizeof(body));
	message_put_done(&w, &done);
	(void)peer_send(conn->verbs->peers, conn->node->node, PROTO_REGIONS_DONE, body, w.len);
}

/* Gives the READs that have completed. */
static int verbs_conn_reap_queue(struct verbs_conn *conn, struct tp_done *done, int max)
{
	unsigned slots[TP_QUEUE_MAX];
	struct ramp_err err;
	int n = queue_reap(conn->queue, slots, max < TP_QUEUE_MAX ? max : TP_QUEUE_MAX, &err);

	if (n < 0) {
		verbs_conn_queue_lost(conn, &err, clock_ms());
		return 0;
	}
	for (int i = 0; i < n; i++) {
		struct verbs_conn_pending *pending = &conn->pending[slots[i]];

		done[i] = (struct tp_done){.cookie = pending->read.cookie,
					   .kind = TP_DATA,
					   .offset = pending->read.offset,
					   .len = pending->read.len};
		atomic_fetch_add_explicit(&conn->node->read_bytes, pending->read.len,
					  memory_order_relaxed);
		pending->used = false;
		conn->n_queue--;
	}
	if (n) {
		atomic_fetch_add_explicit(&conn->node->reads, (uint64_t)n, memory_order_relaxed);
		conn->progress_ms = clock_ms();
		conn->after_ms = CONN_RETRY_MIN_MS;
	}
	if (queue_has_more(conn->queue))
		(void)!write(conn->wake, &(uint64_t){1}, sizeof(uint64_t));
	return n;
}

static int verbs_conn_reap_tcp(struct verbs_conn *conn, struct tp_done *done, int max,
			       size_t max_bytes)
{
	int n = verbs_conn_tcp(conn)->reap(conn->tcp, done, max, max_bytes);

	for (int i = 0; i < n; i++) {
		struct verbs_conn_pending *pending = &conn->pending[done[i].cookie];

		done[i].cookie = pending->read.cookie;
		if (done[i].more)
			continue;
		pending->used = false;
		conn->n_tcp--;
	}
	return n;
}

int verbs_conn_reap(struct tp_conn *base, struct tp_done *done, int max, size_t max_bytes)
{
	struct verbs_conn *conn = verbs_conn_of(base);
	uint64_t count;
	int n = 0, by_tcp;

	if (verbs_conn_is_plain(conn))
		return verbs_conn_tcp(conn)->reap(conn->tcp, done, max, max_bytes);
	if (conn->failed.code)
		return -ENOTCONN;
	if (conn->queue)
		n = verbs_conn_reap_queue(conn, done, max);
	if (n == 0)
		(void)!read(conn->wake, &count, sizeof(count));
	if (n == 0 || (conn->n_tcp && n < max)) {
		/* With nothing from the queue pair, it may be the end of TCP that was heard. */
		by_tcp = verbs_conn_reap_tcp(conn, done + n, max - n, max_bytes);
		if (by_tcp < 0)
			return n ? n : by_tcp;
		n += by_tcp;
	}
	verbs_conn_step(conn);
	return n ? n : conn->failed.code ? -ENOTCONN : 0;
}
