/*
 * Encoding, decoding, sending and receiving of the session's messages (session.h).
 *
 * A table says which fields each type has; one pair of functions walks struct session_msg in order
 * and takes or leaves each field by it. A received packet that is too long or too short is -EBADMSG:
 * wire_r_done says so.
 */
#include "session.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "wire.h"

enum {
	F_SERIAL = 1 << 0,
	F_RESULT = 1 << 1,
	F_FLAGS = 1 << 2,
	F_TID = 1 << 3,
	F_SEGMENT = 1 << 4,
	F_ADDR = 1 << 5,
	F_LEN = 1 << 6,
	F_OFFSET = 1 << 7,
	F_SCRATCH = 1 << 8,
	F_PROT = 1 << 9,
	F_TOKEN = 1 << 10,
	F_PAGES = 1 << 11, /* done and all */
	F_MODE = 1 << 12,
	F_NODE = 1 << 13, /* and name */
	F_TEXT = 1 << 14,
	F_RANGES = 1 << 15,
	F_KNOWN = 1 << 16,
	F_STEP = 1 << 17,
	F_LIMIT = 1 << 18, /* limit and batch: left out where they are 0 */
	/* rounds: left out where it is 0, and no limit follows; older daemons do not know it */
	F_ROUNDS = 1 << 19,
};

static const unsigned int fields[SESSION_TYPES] = {
	[SESSION_HELLO] = F_KNOWN | F_SERIAL | F_FLAGS | F_TID,
	[SESSION_WELCOME] = F_KNOWN | F_SERIAL | F_RESULT | F_TEXT,
	[SESSION_READY] = F_KNOWN | F_SERIAL | F_RESULT | F_TEXT,
	[SESSION_MAP] =
		F_KNOWN | F_SERIAL | F_FLAGS | F_SEGMENT | F_ADDR | F_LEN | F_OFFSET | F_PROT,
	[SESSION_PROTECT] = F_KNOWN | F_SERIAL | F_ADDR | F_LEN | F_PROT,
	[SESSION_UNMAP] = F_KNOWN | F_SERIAL | F_ADDR | F_LEN,
	[SESSION_DROP] = F_KNOWN | F_SERIAL | F_SEGMENT | F_RANGES,
	[SESSION_GONE] = F_KNOWN | F_SERIAL | F_SEGMENT | F_ADDR | F_LEN | F_TEXT,
	[SESSION_BACK] =
		F_KNOWN | F_SERIAL | F_FLAGS | F_SEGMENT | F_ADDR | F_LEN | F_OFFSET | F_PROT,
	[SESSION_SWAP] = F_KNOWN | F_SERIAL | F_ADDR | F_LEN | F_SCRATCH,
	[SESSION_SAY] = F_KNOWN | F_SERIAL | F_TEXT,
	[SESSION_DONE] = F_KNOWN | F_SERIAL | F_RESULT | F_ADDR,
	[SESSION_ATTACH] = F_KNOWN | F_FLAGS | F_LEN | F_OFFSET | F_PROT | F_TOKEN,
	[SESSION_FORK] = F_KNOWN,
	[SESSION_ADOPT] = F_KNOWN | F_TOKEN,
	[SESSION_DETACH] = F_KNOWN | F_SEGMENT | F_ADDR | F_LEN,
	[SESSION_PUNCH] = F_KNOWN | F_SEGMENT | F_LEN | F_OFFSET,
	[SESSION_RESULT] =
		F_KNOWN | F_RESULT | F_SEGMENT | F_ADDR | F_LEN | F_TOKEN | F_PAGES | F_TEXT,
	[SESSION_MIGRATE] = F_KNOWN | F_FLAGS | F_SEGMENT | F_MODE | F_NODE | F_ROUNDS | F_LIMIT,
	[SESSION_CANCEL] = F_KNOWN,
	[SESSION_PROGRESS] = F_KNOWN | F_PAGES | F_TEXT,
	[SESSION_ANSWER] = F_KNOWN | F_RESULT | F_TEXT,
	[SESSION_MEMBER] = F_KNOWN | F_FLAGS | F_ADDR | F_LEN | F_MODE | F_NODE,
	[SESSION_STEP] = F_KNOWN | F_PAGES | F_NODE | F_TEXT,
	[SESSION_LISTEN] = F_KNOWN | F_FLAGS | F_SEGMENT | F_NODE,
	[SESSION_EVENT] =
		F_KNOWN | F_RESULT | F_SEGMENT | F_LEN | F_PAGES | F_MODE | F_NODE | F_TEXT,
	[SESSION_RESERVE] = F_KNOWN | F_SERIAL | F_SEGMENT | F_ADDR | F_LEN | F_SCRATCH,
	[SESSION_MOVE] = F_KNOWN | F_SERIAL | F_SEGMENT | F_RANGES,
	[SESSION_RETURN] = F_KNOWN | F_SERIAL | F_FLAGS | F_SEGMENT,
	[SESSION_CONNECT] =
		F_KNOWN | F_FLAGS | F_SEGMENT | F_LEN | F_MODE | F_NODE | F_STEP | F_ROUNDS,
	[SESSION_GO] = F_KNOWN | F_LEN | F_STEP,
	[SESSION_HELD] = F_KNOWN | F_LEN | F_STEP,
	[SESSION_QUIESCED] = F_KNOWN | F_SEGMENT,
	[SESSION_PULL] = F_KNOWN | F_LEN | F_OFFSET | F_TOKEN,
	[SESSION_GIVE_UP] = F_KNOWN | F_FLAGS | F_TOKEN,
	[SESSION_BATCH] = F_KNOWN | F_FLAGS | F_MODE | F_NODE | F_RANGES | F_ROUNDS | F_LIMIT,
	[SESSION_VERDICT] = F_KNOWN | F_RESULT | F_SEGMENT | F_TEXT,
	[SESSION_GROW] = F_KNOWN,
};

static void put_ranges(struct wire_w *w, const struct session_msg *msg)
{
	if (msg->count > SESSION_RANGES_MAX) {
		w->bad = true;
		return;
	}
	wire_put_u32(w, msg->count);
	for (uint32_t i = 0; i < msg->count; i++) {
		wire_put_u64(w, msg->ranges[i].addr);
		wire_put_u64(w, msg->ranges[i].len);
	}
}

static void put_numbers(struct wire_w *w, const struct session_msg *msg, unsigned int has)
{
	if (has & F_SERIAL)
		wire_put_u32(w, msg->serial);
	if (has & F_RESULT)
		wire_put_u32(w, msg->result);
	if (has & F_FLAGS)
		wire_put_u32(w, msg->flags);
	if (has & F_TID)
		wire_put_u32(w, msg->tid);
	if (has & F_SEGMENT)
		wire_put_u64(w, msg->segment);
	if (has & F_ADDR)
		wire_put_u64(w, msg->addr);
	if (has & F_LEN)
		wire_put_u64(w, msg->len);
	if (has & F_OFFSET)
		wire_put_u64(w, msg->offset);
	if (has & F_SCRATCH)
		wire_put_u64(w, msg->scratch);
	if (has & F_PROT)
		wire_put_u32(w, msg->prot);
}

int session_encode(const struct session_msg *msg, void *buf, size_t cap)
{
	struct wire_w w;
	unsigned int has;

	if (msg->type == 0 || msg->type >= SESSION_TYPES)
		return -EINVAL;
	has = fields[msg->type];
	wire_w_init(&w, buf, cap);
	wire_put_u16(&w, SESSION_VERSION);
	wire_put_u16(&w, msg->type);
	put_numbers(&w, msg, has);
	if (has & F_TOKEN) {
		wire_put_u64(&w, msg->token[0]);
		wire_put_u64(&w, msg->token[1]);
	}
	if (has & F_PAGES) {
		wire_put_u64(&w, msg->done);
		wire_put_u64(&w, msg->all);
	}
	if (has & F_MODE)
		wire_put_u8(&w, msg->mode);
	if (has & F_NODE) {
		wire_put_str(&w, msg->node);
		wire_put_str(&w, msg->name);
	}
	if (has & F_TEXT)
		wire_put_str(&w, msg->text);
	if (has & F_RANGES)
		put_ranges(&w, msg);
	if (has & F_STEP)
		wire_put_u8(&w, msg->step);
	if (has & F_ROUNDS && (msg->rounds || msg->limit))
		wire_put_u8(&w, msg->rounds);
	if (has & F_LIMIT && msg->limit) {
		wire_put_u64(&w, msg->limit);
		wire_put_u64(&w, msg->batch);
	}
	return w.bad ? -EMSGSIZE : (int)w.len;
}

static void get_ranges(struct wire_r *r, struct session_msg *msg)
{
	uint32_t count = wire_get_u32(r);

	if (count > SESSION_RANGES_MAX) {
		r->bad = true;
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		msg->ranges[i].addr = wire_get_u64(r);
		msg->ranges[i].len = wire_get_u64(r);
	}
	msg->count = count;
}

static void get_numbers(struct wire_r *r, struct session_msg *msg, unsigned int has)
{
	if (has & F_SERIAL)
		msg->serial = wire_get_u32(r);
	if (has & F_RESULT)
		msg->result = wire_get_u32(r);
	if (has & F_FLAGS)
		msg->flags = wire_get_u32(r);
	if (has & F_TID)
		msg->tid = wire_get_u32(r);
	if (has & F_SEGMENT)
		msg->segment = wire_get_u64(r);
	if (has & F_ADDR)
		msg->addr = wire_get_u64(r);
	if (has & F_LEN)
		msg->len = wire_get_u64(r);
	if (has & F_OFFSET)
		msg->offset = wire_get_u64(r);
	if (has & F_SCRATCH)
		msg->scratch = wire_get_u64(r);
	if (has & F_PROT)
		msg->prot = wire_get_u32(r);
}

int session_decode(const void *buf, size_t len, struct session_msg *msg)
{
	struct wire_r r;
	unsigned int has;
	uint16_t version;

	memset(msg, 0, sizeof(*msg));
	wire_r_init(&r, buf, len);
	version = wire_get_u16(&r);
	msg->type = wire_get_u16(&r);
	if (r.bad)
		return -EBADMSG;
	if (version != SESSION_VERSION)
		return -EPROTO;
	if (msg->type >= SESSION_TYPES || !fields[msg->type])
		return -EBADMSG;
	has = fields[msg->type];
	get_numbers(&r, msg, has);
	if (has & F_TOKEN) {
		msg->token[0] = wire_get_u64(&r);
		msg->token[1] = wire_get_u64(&r);
	}
	if (has & F_PAGES) {
		msg->done = wire_get_u64(&r);
		msg->all = wire_get_u64(&r);
	}
	if (has & F_MODE)
		msg->mode = wire_get_u8(&r);
	if (has & F_NODE) {
		wire_get_str(&r, msg->node, sizeof(msg->node));
		wire_get_str(&r, msg->name, sizeof(msg->name));
	}
	if (has & F_TEXT)
		wire_get_str(&r, msg->text, sizeof(msg->text));
	if (has & F_RANGES)
		get_ranges(&r, msg);
	if (has & F_STEP)
		msg->step = wire_get_u8(&r);
	if (has & F_ROUNDS && r.pos < r.len) {
		msg->rounds = wire_get_u8(&r);
		r.bad |= msg->rounds == 0 && r.pos == r.len;
	}
	if (has & F_LIMIT && r.pos < r.len) {
		msg->limit = wire_get_u64(&r);
		msg->batch = wire_get_u64(&r);
		r.bad |= msg->limit == 0; /* it is left out then */
	}
	return wire_r_done(&r) ? 0 : -EBADMSG;
}

/* Waits without limit if patience_ms is 0. */
static int connect_to(const char *path, uint32_t patience_ms)
{
	struct timeval time = {.tv_sec = patience_ms / 1000,
			       .tv_usec = (patience_ms % 1000) * 1000};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t len = strlen(path);
	int sock, saved;

	if (len >= sizeof(to.sun_path))
		return -ENAMETOOLONG;
	memcpy(to.sun_path, path, len);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
	while (connect(sock, (const struct sockaddr *)&to, sizeof(to))) {
		saved = errno;
		if (saved == EINTR)
			continue;
		close(sock);
		return -saved;
	}
	return sock;
}

int session_connect(const char *path)
{
	return connect_to(path, 0);
}

int session_connect_within(const char *path, uint32_t patience_ms)
{
	return connect_to(path, patience_ms);
}

union fd_control {
	char bytes[CMSG_SPACE(sizeof(int) * SESSION_FDS_MAX)];
	struct cmsghdr align;
};

static int send_packet(int sock, void *buf, size_t len, const int *fds, int nfds, int flags)
{
	struct iovec io = {buf, len};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	union fd_control control;
	ssize_t n;

	if (nfds > 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	do
		n = sendmsg(sock, &m, flags | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int session_send(int sock, const struct session_msg *msg, const int *fds, int nfds, int flags)
{
	uint8_t buf[SESSION_PACKET_MAX];
	int len = session_encode(msg, buf, sizeof(buf));

	if (len < 0)
		return len;
	if (nfds < 0 || nfds > SESSION_FDS_MAX)
		return -EINVAL;
	return send_packet(sock, buf, (size_t)len, fds, nfds, flags);
}

/* Takes the descriptors out of the control buffer. */
static void take_fds(struct msghdr *m, int *fds, int *nfds)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && *nfds < SESSION_FDS_MAX; i++, (*nfds)++)
			memcpy(&fds[*nfds], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
}

int session_recv(int sock, struct session_msg *msg, int *fds, int *nfds, int flags)
{
	uint8_t buf[SESSION_PACKET_MAX];
	struct iovec io = {buf, sizeof(buf)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	union fd_control control;
	int rc;
	ssize_t n;

	if (fds) {
		*nfds = 0;
		m.msg_control = control.bytes;
		m.msg_controllen = sizeof(control);
	}
	do
		n = recvmsg(sock, &m, flags | (fds ? MSG_CMSG_CLOEXEC : 0));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (fds)
		take_fds(&m, fds, nfds);
	if (n == 0)
		rc = -EPIPE;
	else if (m.msg_flags & MSG_TRUNC)
		rc = -EBADMSG;
	else
		rc = session_decode(buf, (size_t)n, msg);
	if (rc && fds) {
		for (int i = 0; i < *nfds; i++)
			close(fds[i]);
		*nfds = 0;
	}
	return rc;
}

int session_send_uffds(int broker, const int *uffds, int count)
{
	uint8_t byte = SESSION_VERSION;

	return send_packet(broker, &byte, 1, uffds, count, 0);
}
