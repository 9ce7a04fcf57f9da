/*
 * /dev/fuse, read by a pool of threads on the one descriptor.
 *
 * A daemon that starts on a living connection feeds itself the INIT that was saved (its reply goes
 * nowhere), asks the kernel to send again what the dead daemon had read and not answered, serves
 * that, and starts the pool. A daemon that starts on a new connection gets INIT as any server does;
 * the request and the answer, patched for a resend, are saved before the answer is written.
 *
 * How it fails: a read that says ENODEV means that the mount is gone, which the keeper and main are
 * told. An INIT that comes again (the former daemon died between saving and writing its answer) is
 * answered as it was the first time. A request of which daemon after daemon dies as soon as it is
 * carried out again is answered EIO; one that ends them later, from another thread, can't be told
 * from the others. Not clone_fd: a dead daemon's clones close, and requests hang.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "keeper/protocol.h"
#include "mnt.h"
#include "passthrough.h"

#define RECEIVE_BYTES ((1u << 20) + 65536)
#define LOCKED_BYTES  (REQUEST_BYTES + 65536)
#define STOP_SIGNAL   SIGUSR1
#define DEATHS_MAX    8 /* more than the keeper starts without a pause */

struct server {
	pthread_t thread;
	struct mount *mount;
	uint8_t *receive;
};

struct drained {
	STAILQ_ENTRY(drained) link;
	size_t len;
	uint8_t bytes[];
};
STAILQ_HEAD(drained_list, drained);

static __thread struct fuse_in_header current;
static __thread bool current_kills_setid;
static __thread const struct fuse_buf *current_buf; /* while INIT is being processed */
static __thread bool swallow;
static __thread uint8_t *own_reply;

uint64_t fuse_loop_unique(void)
{
	return current.unique & ~KERNEL_FUSE_UNIQUE_RESEND;
}

bool fuse_loop_resent(void)
{
	return (current.unique & KERNEL_FUSE_UNIQUE_RESEND) != 0;
}

bool fuse_loop_kills_setid(void)
{
	return current_kills_setid;
}

/* What lies behind the first LOCKED_BYTES is for a connection that an older daemon opened, with
   larger requests: it is taken where it is used. */
void *locked_buffer(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t locked = len < LOCKED_BYTES ? len : LOCKED_BYTES;

	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, locked, MADV_POPULATE_WRITE) || mlock(p, locked))
		log_debug("a buffer is not locked: %s", strerror(errno));
	return p;
}

int fuse_loop_reply(fuse_req_t req, const void *body, size_t len)
{
	struct fuse_out_header header = {.len = (uint32_t)(sizeof(header) + len),
					 .unique = current.unique};
	struct iovec iov[2] = {{&header, sizeof(header)}, {(void *)(uintptr_t)body, len}};
	int rc = writev(KEEPER_FD_FUSE, iov, 2) < 0 ? -errno : 0;

	if (rc && rc != -ENOENT)
		log_warn("answering a request: %s", strerror(-rc));
	fuse_reply_none(req);
	return rc;
}

uint8_t *reply_buffer(void)
{
	if (!own_reply)
		own_reply = locked_buffer(REPLY_BYTES);
	return own_reply;
}

static void free_reply_buffer(void)
{
	if (own_reply)
		munmap(own_reply, REPLY_BYTES);
	own_reply = NULL;
}

/* ---- what libfuse calls --------------------------------------------------------------------- */

static ssize_t io_read(int fd, void *buf, size_t len, void *userdata)
{
	(void)userdata;
	return read(fd, buf, len);
}

static ssize_t io_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct mount *m = userdata;
	ssize_t len = 0;

	for (int i = 0; i < count; i++)
		len += (ssize_t)iov[i].iov_len;
	/* An INIT that fails for want of memory would break the mount for good: libfuse would
	   answer every request EIO, or the kernel take none any more. The next daemon gets it
	   again. */
	if ((swallow || current_buf) && count == 1 &&
	    ((const struct fuse_out_header *)iov[0].iov_base)->error == -ENOMEM)
		abort();
	if (swallow)
		return len;
	if (current_buf && count == 2) {
		handover_patch_reply(current_buf->mem, current_buf->size, iov[1].iov_base,
				     iov[1].iov_len);
		handover_save_reply(m->handover, iov[1].iov_base, iov[1].iov_len);
	}
	return writev(fd, iov, count);
}

/* ---- one request ---------------------------------------------------------------------------- */

/* INIT again: its answer was saved, and maybe not written. */
static void answer_init_again(struct mount *m)
{
	size_t len;
	const void *reply = handover_reply(m->handover, &len);
	struct fuse_out_header header = {.len = (uint32_t)(sizeof(header) + len),
					 .unique = current.unique};
	struct iovec iov[2] = {{&header, sizeof(header)}, {(void *)(uintptr_t)reply, len}};

	if (writev(KEEPER_FD_FUSE, iov, 2) < 0)
		log_warn("INIT answered again: %s", strerror(errno));
}

static void process_init(struct mount *m, const struct fuse_buf *buf)
{
	size_t len;

	if (handover_reply(m->handover, &len)) {
		answer_init_again(m);
		return;
	}
	if (handover_save_init(m->handover, buf->mem, buf->size))
		log_warn("INIT has %zu bytes: the next daemon can't take this mount over",
			 buf->size);
	current_buf = buf;
	fuse_session_process_buf(m->session, buf);
	current_buf = NULL;
}

/* What libfuse does not hand on: the kernel marks a direct write, and leaves the rest to us. */
static bool kills_setid(const struct fuse_buf *buf)
{
	struct fuse_write_in in;

	if (current.opcode != FUSE_WRITE || buf->size < sizeof(current) + sizeof(in))
		return false;
	memcpy(&in, (const uint8_t *)buf->mem + sizeof(current), sizeof(in));
	return in.write_flags & FUSE_WRITE_KILL_SUIDGID;
}

static void process(struct mount *m, const struct fuse_buf *buf)
{
	if (buf->size < sizeof(current))
		return;
	memcpy(&current, buf->mem, sizeof(current));
	current_kills_setid = kills_setid(buf);
	__atomic_fetch_add(&m->requests, 1, __ATOMIC_RELAXED);
	if (fuse_loop_resent())
		__atomic_fetch_add(&m->resent, 1, __ATOMIC_RELAXED);
	if (current.opcode == FUSE_INIT)
		process_init(m, buf);
	else
		fuse_session_process_buf(m->session, buf);
}

/* ---- taking over ---------------------------------------------------------------------------- */

static int feed_saved_init(struct mount *m, struct ramp_err *err)
{
	uint8_t bytes[HANDOVER_INIT_BYTES];
	struct fuse_buf buf = {.mem = bytes};
	size_t len;
	const void *init = handover_init(m->handover, &len);
	struct fuse_in_header *header = (struct fuse_in_header *)bytes;

	memcpy(bytes, init, len);
	header->unique &= ~KERNEL_FUSE_UNIQUE_RESEND;
	buf.size = len;
	current = *header;
	swallow = true;
	fuse_session_process_buf(m->session, &buf);
	swallow = false;
	if (fuse_session_exited(m->session))
		return ramp_err_set(err, EPROTO, "libfuse does not take the saved INIT");
	return 0;
}

static void ask_resend(void)
{
	struct fuse_out_header notice = {.len = sizeof(notice),
					 .error = (int32_t)KERNEL_FUSE_NOTIFY_RESEND};

	if (write(KEEPER_FD_FUSE, &notice, sizeof(notice)) < 0)
		log_warn("requests that a former daemon had read are not sent again: %s",
			 strerror(errno));
}

/* True when a request of this kind may stand before the end of what is sent again. */
static bool no_reply_expected(uint32_t opcode)
{
	return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
}

/* Reads all that is sent again (it comes first), and at most one request behind it. */
static int drain(struct mount *m, struct drained_list *list)
{
	uint8_t *buf = m->servers[0].receive;

	for (;;) {
		ssize_t n = read(KEEPER_FD_FUSE, buf, RECEIVE_BYTES);
		struct fuse_in_header header;
		struct drained *d;

		if (n < 0 && (errno == ENOENT || errno == EINTR))
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n < (ssize_t)sizeof(header))
			return -EPROTO;
		d = malloc(sizeof(*d) + (size_t)n);
		if (!d)
			abort(); /* the keeper starts us again, and the kernel sends again */
		d->len = (size_t)n;
		memcpy(d->bytes, buf, d->len);
		STAILQ_INSERT_TAIL(list, d, link);
		memcpy(&header, buf, sizeof(header));
		if (!(header.unique & KERNEL_FUSE_UNIQUE_RESEND) &&
		    !no_reply_expected(header.opcode))
			return 0;
	}
}

static void forget_other_appends(struct mount *m, struct drained_list *list)
{
	struct drained *d;
	uint64_t *uniques;
	size_t n = 0;

	STAILQ_FOREACH (d, list, link)
		n++;
	uniques = calloc(n + 1, sizeof(*uniques));
	if (!uniques)
		abort();
	n = 0;
	STAILQ_FOREACH (d, list, link) {
		struct fuse_in_header header;

		memcpy(&header, d->bytes, sizeof(header));
		uniques[n++] = header.unique & ~KERNEL_FUSE_UNIQUE_RESEND;
	}
	handover_forget_others(m->handover, uniques, n);
	free(uniques);
}

static void drop_drained(struct drained_list *list)
{
	struct drained *d;

	while ((d = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, link);
		free(d);
	}
}

/* Whoever waits for it gets EIO, and everybody else a daemon. */
static void refuse_deadly(struct mount *m, const struct fuse_in_header *in, uint64_t unique)
{
	struct fuse_out_header out = {.len = sizeof(out), .error = -EIO, .unique = in->unique};

	log_error("%d daemons in a row have died of request %" PRIu64
		  " (kind %u, of process %u, on segment %" PRIu64 "): it is answered EIO",
		  DEATHS_MAX, unique, in->opcode, in->pid, in->nodeid);
	if (write(KEEPER_FD_FUSE, &out, sizeof(out)) < 0 && errno != ENOENT)
		log_warn("answering a request: %s", strerror(errno));
	handover_append_drop(m->handover, unique);
	pass_dropped(m, unique);
}

/* A request that ends the daemon would be sent again to each that comes after it, for ever. */
static void process_again(struct mount *m, struct drained *d)
{
	struct fuse_buf buf = {.mem = d->bytes, .size = d->len};
	struct fuse_in_header header;
	uint64_t unique;

	memcpy(&header, d->bytes, sizeof(header));
	unique = header.unique & ~KERNEL_FUSE_UNIQUE_RESEND;
	if (header.opcode == FUSE_INIT || no_reply_expected(header.opcode)) {
		process(m, &buf);
	} else if (handover_deaths(m->handover, unique) >= DEATHS_MAX) {
		refuse_deadly(m, &header, unique);
	} else {
		handover_try_begin(m->handover, unique);
		process(m, &buf);
		handover_try_end(m->handover);
	}
}

static int set_nonblocking(bool on)
{
	int flags = fcntl(KEEPER_FD_FUSE, F_GETFL);

	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return fcntl(KEEPER_FD_FUSE, F_SETFL, flags);
}

static int take_over(struct mount *m, struct ramp_err *err)
{
	struct drained_list list = STAILQ_HEAD_INITIALIZER(list);
	struct drained *d;
	size_t len;
	int rc;

	ask_resend();
	if (handover_init(m->handover, &len)) {
		rc = feed_saved_init(m, err);
		if (rc)
			return rc;
	}
	if (set_nonblocking(true))
		return ramp_err_sys(err, errno, "/dev/fuse");
	rc = drain(m, &list);
	set_nonblocking(false);
	if (rc && rc != -ENODEV) {
		drop_drained(&list);
		return ramp_err_sys(err, -rc, "reading what is sent again");
	}
	if (rc)
		mount_end(m, MOUNT_UNMOUNTED);
	forget_other_appends(m, &list);
	meta_hold(m->config.meta);
	atomic_store(&m->sent_again, true);
	while ((d = STAILQ_FIRST(&list))) {
		STAILQ_REMOVE_HEAD(&list, link);
		process_again(m, d);
		free(d);
	}
	atomic_store(&m->sent_again, false);
	meta_release(m->config.meta);
	free_reply_buffer(); /* of the control thread, which serves no more */
	return 0;
}

/* ---- the pool ------------------------------------------------------------------------------- */

static void *serve(void *arg)
{
	struct server *server = arg;
	struct mount *m = server->mount;
	struct fuse_buf buf = {.mem = server->receive};
	struct timespec pause = {.tv_nsec = 10000000};

	while (!fuse_session_exited(m->session)) {
		int n = fuse_session_receive_buf(m->session, &buf);

		if (n == -EINTR || n == -EAGAIN || n == -ENOENT)
			continue;
		if (n < 0) {
			log_error("reading /dev/fuse: %s", strerror(-n));
			nanosleep(&pause, NULL);
			continue;
		}
		if (n == 0) { /* ENODEV, to libfuse, or somebody else ended the session */
			if (!__atomic_load_n(&m->stopping, __ATOMIC_ACQUIRE))
				mount_end(m, MOUNT_UNMOUNTED);
			break;
		}
		process(m, &buf);
	}
	free_reply_buffer();
	return NULL;
}

static void on_stop_signal(int sig)
{
	(void)sig; /* it is there to end a read(2) */
}

static int make_session(struct mount *m, struct ramp_err *err)
{
	static const struct fuse_custom_io io = {.read = io_read, .writev = io_writev};
	char *argv[] = {(char *)(uintptr_t) "rampfs", (char *)(uintptr_t) "-d", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(m->config.debug ? 2 : 1, argv);
	int rc;

	m->session = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), m);
	fuse_opt_free_args(&args);
	if (!m->session)
		return ramp_err_set(err, EIO, "libfuse makes no session");
	rc = fuse_session_custom_io(m->session, &io, KEEPER_FD_FUSE);
	if (rc)
		return ramp_err_set(err, rc < 0 ? -rc : rc,
				    "libfuse does not take our read and write");
	return 0;
}

int fuse_loop_open(struct mount *m, struct ramp_err *err)
{
	m->n_servers = m->config.threads ? m->config.threads : 8;
	m->servers = calloc(m->n_servers, sizeof(*m->servers));
	if (!m->servers)
		return ramp_err_sys(err, ENOMEM, "fuse pool");
	for (uint32_t i = 0; i < m->n_servers; i++) {
		m->servers[i].mount = m;
		m->servers[i].receive = locked_buffer(RECEIVE_BYTES);
		if (!m->servers[i].receive)
			return ramp_err_sys(err, ENOMEM, "fuse pool's buffers");
	}
	return make_session(m, err);
}

int fuse_loop_start(struct mount *m, struct ramp_err *err)
{
	struct sigaction sa = {.sa_handler = on_stop_signal};
	int rc = take_over(m, err);

	if (rc)
		return rc;
	sigaction(STOP_SIGNAL, &sa, NULL);
	for (uint32_t i = 0; i < m->n_servers; i++) {
		rc = pthread_create(&m->servers[i].thread, NULL, serve, &m->servers[i]);
		if (rc)
			return ramp_err_sys(err, rc, "fuse pool's thread");
		pthread_setname_np(m->servers[i].thread, "fuse");
	}
	return 0;
}

/* A thread that has just looked at the flag and not yet slept misses one signal: so they repeat. */
static void join(pthread_t thread)
{
	struct timespec wait = {.tv_nsec = 1000000};

	while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
		pthread_kill(thread, STOP_SIGNAL);
		nanosleep(&wait, NULL);
	}
}

void fuse_loop_stop(struct mount *m)
{
	if (!m->servers)
		return;
	__atomic_store_n(&m->stopping, true, __ATOMIC_RELEASE);
	if (m->session)
		fuse_session_exit(m->session);
	for (uint32_t i = 0; i < m->n_servers; i++) {
		if (m->servers[i].thread)
			join(m->servers[i].thread);
		if (m->servers[i].receive)
			munmap(m->servers[i].receive, RECEIVE_BYTES);
	}
	free(m->servers);
	m->servers = NULL;
}
