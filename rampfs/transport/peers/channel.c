/*
 * A control connection whose two ends have proved themselves.
 *
 *   message: u32 length of the body, u64 counter, u8 type, 32 bytes HMAC over these;
 *            body, 32 bytes HMAC over all before it
 *
 * The states, and the functions that change them (by channel_go):
 *
 *   NEW -> UP             [channel_start]
 *   NEW, UP -> BROKEN     [channel_break]  a sender's write has failed; the loop has yet to end it
 *   any other -> CLOSED   [channel_close]
 *
 * Happy path: a sender on any thread but the loop's makes the HMAC under peer->lock and writes straight
 * to the stream from its own memory; no other thread wakes. Bytes that the stream does not take are
 * copied to a queue, and the loop is told to wait until the socket is writable. The loop reads into one
 * buffer and calls the handler of each whole message. Messages of the loop's own thread are queued,
 * and go out by one system call when all that was read is handled, or before the loop sleeps: a batch of
 * moves has many to answer at a time.
 *
 * Each direction has a key of its own, made from both nonces of the hello, and counts its messages
 * from 1. So a message that is altered, replayed, left out, turned back or carried over from
 * another connection fails, and ends the connection. The header is proved before it is believed:
 * an altered length would swallow the messages behind it, for as long as they take to fill it. For
 * the same reason bytes of a message that does not become whole count as silence, unless there are
 * many.
 *
 * How it fails: any error of the stream, end of file, a bad message, silence, no memory for the
 * rest of a half-written message. All end in peer_events.disconnected; a sender's thread makes the
 * channel BROKEN and leaves the rest to the loop. Messages in the queue are lost then.
 */
#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "peer_core.h"

#define SILENT_TICKS	  10 /* without a message: the peer is down */
#define QUEUE_MAX_BYTES	  (16u << 20)
#define TYPE_ALIVE	  0 /* the one message type that is ours; it has no body */
#define HEADER_BYTES	  13
#define PROVED_BYTES	  (HEADER_BYTES + HMAC_BYTES) /* the header and its HMAC */
#define IN_SMALL_BYTES	  (64u << 10)
#define READ_TURN_BYTES	  (1u << 20) /* then the other handles of the loop get their turn */
#define QUEUE_CHUNK_COUNT 16
#define HEARD_BYTES	  4096 /* in one tick: a long message is arriving, the peer is not silent */

struct chunk {
	STAILQ_ENTRY(chunk) link;
	size_t len, pos;
	uint8_t bytes[];
};

enum channel_state { CHANNEL_NEW, CHANNEL_UP, CHANNEL_BROKEN, CHANNEL_CLOSED };

struct channel {
	struct peer *peer;
	struct stream stream;
	uv_poll_t poll;
	char endpoint[ENDPOINT_TEXT_BYTES];
	_Atomic enum channel_state state; /* changed by the loop, or under peer->lock */
	uint8_t secret[HMAC_BYTES];

	/* Out; protected by peer->lock. */
	struct hmac *out_mac;
	uint64_t out_count;
	STAILQ_HEAD(, chunk) queue;
	size_t queued_bytes;
	bool spoke; /* since the last tick */

	pthread_t loop_thread;
	bool held; /* the loop's thread has queued messages, and not written them; its own */

	/* In; of the loop. */
	struct hmac *in_mac;
	uint64_t in_count;
	uint8_t *in;
	size_t in_cap, in_len;
	bool waits_writable;
	uint64_t heard_count; /* in_count and */
	size_t came;	      /* bytes since the last tick */
	unsigned int silent_ticks;
};

static void on_poll(uv_poll_t *poll, int status, int events);

#define STATE(state) (1u << (state))

static const struct {
	const char *name;
	unsigned int next;
} channel_states[] = {
	[CHANNEL_NEW] = {"NEW", STATE(CHANNEL_UP) | STATE(CHANNEL_BROKEN) | STATE(CHANNEL_CLOSED)},
	[CHANNEL_UP] = {"UP", STATE(CHANNEL_BROKEN) | STATE(CHANNEL_CLOSED)},
	[CHANNEL_BROKEN] = {"BROKEN", STATE(CHANNEL_CLOSED)},
	[CHANNEL_CLOSED] = {"CLOSED", 0},
};

/* Changes the state: the only function that does. Aborts on a step that the drawing lacks. */
static void channel_go(struct channel *channel, enum channel_state from, enum channel_state to)
{
	if (channel->state != from || !(channel_states[from].next & STATE(to))) {
		log_error("channel with %s: no step from %s (expected %s) to %s", channel->endpoint,
			  channel_states[channel->state].name, channel_states[from].name,
			  channel_states[to].name);
		abort();
	}
	log_debug("channel with %s: %s -> %s", channel->endpoint, channel_states[from].name,
		  channel_states[to].name);
	channel->state = to;
}

static bool channel_is_closed(const struct channel *channel)
{
	return channel->state == CHANNEL_CLOSED;
}

static int open_mac(struct hmac **out, const struct hello *hello, bool from_dialer)
{
	uint8_t key[HMAC_BYTES];
	int rc = hello_session_key(hello, from_dialer, key);

	if (!rc)
		rc = hmac_open(out, key, sizeof(key));
	hmac_wipe(key, sizeof(key));
	return rc;
}

static void free_channel(struct channel *channel)
{
	struct chunk *chunk;

	while ((chunk = STAILQ_FIRST(&channel->queue))) {
		STAILQ_REMOVE_HEAD(&channel->queue, link);
		free(chunk);
	}
	hmac_close(channel->in_mac);
	hmac_close(channel->out_mac);
	hmac_wipe(channel->secret, sizeof(channel->secret));
	free(channel->in);
	free(channel);
}

int channel_open(struct peer *peer, const struct stream *stream, const struct hello *hello,
		 bool dialed, struct ramp_err *err)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	int rc = -ENOMEM;

	if (!channel)
		return ramp_err_sys(err, ENOMEM, "control connection");
	STAILQ_INIT(&channel->queue);
	channel->peer = peer;
	channel->stream = *stream;
	channel->loop_thread = pthread_self();
	channel->in_cap = IN_SMALL_BYTES;
	channel->in = malloc(channel->in_cap);
	endpoint_text(stream->fd, channel->endpoint);
	if (channel->in)
		rc = open_mac(&channel->out_mac, hello, dialed);
	if (!rc)
		rc = open_mac(&channel->in_mac, hello, !dialed);
	if (!rc)
		rc = hello_secret(hello, channel->secret);
	if (!rc)
		rc = uv_poll_init(loop_uv(peer->peers->loop), &channel->poll, stream->fd);
	if (rc) {
		free_channel(channel);
		return ramp_err_sys(err, -rc, "control connection");
	}
	channel->poll.data = channel;
	peers_hold(peer->peers);
	pthread_mutex_lock(&peer->lock);
	peer->channel = channel;
	pthread_mutex_unlock(&peer->lock);
	return 0;
}

static void channel_wait(struct channel *channel, bool writable)
{
	short events = stream_wants(&channel->stream, POLLIN | (writable ? POLLOUT : 0));

	channel->waits_writable = writable;
	uv_poll_start(&channel->poll,
		      (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0),
		      on_poll);
}

void channel_start(struct channel *channel)
{
	pthread_mutex_t *lock = &channel->peer->lock;

	pthread_mutex_lock(lock);
	/* A sender may have found the channel since channel_open, and may have broken it. */
	if (channel->state == CHANNEL_NEW)
		channel_go(channel, CHANNEL_NEW, CHANNEL_UP);
	pthread_mutex_unlock(lock);
	channel_wait(channel, false);
}

int channel_key(const struct channel *channel, const char *label, uint8_t key[HMAC_BYTES])
{
	return hmac_derive(channel->secret, label, NULL, 0, key);
}

const char *channel_endpoint(const struct channel *channel)
{
	return channel->endpoint;
}

int channel_fd(const struct channel *channel)
{
	return channel->stream.fd;
}

static void on_channel_closed(uv_handle_t *handle)
{
	struct channel *channel = handle->data;
	struct peers *peers = channel->peer->peers;

	free_channel(channel);
	peers_release(peers);
}

/* Out. */

/* Copies the bytes of iov behind the first `done` to the end of the queue. */
static int queue_rest(struct channel *channel, const struct iovec *iov, size_t n, size_t done,
		      size_t total)
{
	struct chunk *chunk = malloc(sizeof(*chunk) + total - done);

	if (!chunk)
		return -ENOMEM;
	chunk->pos = 0;
	chunk->len = 0;
	for (size_t i = 0; i < n; i++) {
		size_t skip = done < iov[i].iov_len ? done : iov[i].iov_len;
		size_t len = iov[i].iov_len - skip;

		if (len)
			memcpy(chunk->bytes + chunk->len, (uint8_t *)iov[i].iov_base + skip, len);
		chunk->len += len;
		done -= skip;
	}
	STAILQ_INSERT_TAIL(&channel->queue, chunk, link);
	channel->queued_bytes += chunk->len;
	return 0;
}

/* Returns how many bytes the stream took (-EAGAIN is 0), or another negative errno. */
static ssize_t channel_write(struct channel *channel, const struct iovec *iov, size_t n)
{
	ssize_t sent = stream_writev(&channel->stream, iov, n);

	return sent == -EAGAIN ? 0 : sent;
}

/* Writes the queue as far as the socket takes it; peer->lock held. */
static int flush_queue(struct channel *channel)
{
	while (!STAILQ_EMPTY(&channel->queue)) {
		struct iovec iov[QUEUE_CHUNK_COUNT];
		struct chunk *chunk;
		size_t n = 0;
		ssize_t sent;

		STAILQ_FOREACH (chunk, &channel->queue, link) {
			iov[n++] =
				(struct iovec){chunk->bytes + chunk->pos, chunk->len - chunk->pos};
			if (n == QUEUE_CHUNK_COUNT)
				break;
		}
		sent = channel_write(channel, iov, n);
		if (sent <= 0)
			return (int)sent;
		channel->queued_bytes -= (size_t)sent;
		while (sent > 0) {
			size_t part;

			chunk = STAILQ_FIRST(&channel->queue);
			part = chunk->len - chunk->pos;
			if ((size_t)sent < part) {
				chunk->pos += (size_t)sent;
				break;
			}
			STAILQ_REMOVE_HEAD(&channel->queue, link);
			free(chunk);
			sent -= (ssize_t)part;
		}
	}
	return 0;
}

void channel_close(struct channel *channel)
{
	/* The loop may just have sent something. No sender has the channel any more. */
	if (channel->state == CHANNEL_UP)
		(void)flush_queue(channel);
	channel_go(channel, channel->state, CHANNEL_CLOSED);
	uv_close((uv_handle_t *)&channel->poll, on_channel_closed);
	stream_close(&channel->stream);
}

/* Makes the header with its HMAC, and the HMAC of the whole message. */
static int put_proofs(struct channel *channel, uint8_t header[PROVED_BYTES], uint8_t type,
		      const void *body, size_t len, uint8_t mac[HMAC_BYTES])
{
	struct wire_w w;
	int rc;

	wire_w_init(&w, header, PROVED_BYTES);
	wire_put_u32(&w, (uint32_t)len);
	wire_put_u64(&w, channel->out_count + 1);
	wire_put_u8(&w, type);
	hmac_begin(channel->out_mac);
	hmac_add(channel->out_mac, header, HEADER_BYTES);
	rc = hmac_end(channel->out_mac, header + HEADER_BYTES);
	if (rc)
		return rc;
	hmac_begin(channel->out_mac);
	hmac_add(channel->out_mac, header, PROVED_BYTES);
	hmac_add(channel->out_mac, body, len);
	return hmac_end(channel->out_mac, mac);
}

/* The loop ends the channel; no sender writes to it any more. peer->lock held. */
static void channel_break(struct channel *channel, bool *wake)
{
	channel_go(channel, channel->state, CHANNEL_BROKEN);
	*wake = true;
}

/* Queues what the loop's thread sends. Else writes what is queued, and then the frame, as far as the
   socket takes it. */
static int put_frame(struct channel *channel, struct iovec iov[3], size_t total, bool *wake)
{
	bool holds = pthread_equal(channel->loop_thread, pthread_self());
	ssize_t sent = holds ? 0 : flush_queue(channel);

	if (!holds && sent == 0 && STAILQ_EMPTY(&channel->queue))
		sent = channel_write(channel, iov, 3);
	if (sent < 0) {
		channel_break(channel, wake);
		return -EHOSTUNREACH;
	}
	if ((size_t)sent == total)
		return 0;
	if (queue_rest(channel, iov, 3, (size_t)sent, total)) {
		/* Half a message is out, or a counter is used up: the other end would notice. */
		channel_break(channel, wake);
		return -ENOBUFS;
	}
	if (holds)
		channel->held = true;
	else
		*wake = true;
	return 0;
}

int channel_send(struct channel *channel, uint8_t type, const void *body, size_t len, bool *wake)
{
	size_t total = PROVED_BYTES + len + HMAC_BYTES;
	uint8_t header[PROVED_BYTES], mac[HMAC_BYTES];
	struct iovec iov[3] = {
		{header, sizeof(header)},
		{(void *)(uintptr_t)body, len},
		{mac, sizeof(mac)},
	};
	int rc;

	if (channel->state == CHANNEL_BROKEN)
		return -EHOSTUNREACH;
	if (channel->queued_bytes + total > QUEUE_MAX_BYTES)
		return -ENOBUFS;
	if (put_proofs(channel, header, type, body, len, mac))
		return -ENOBUFS;
	channel->out_count++;
	rc = put_frame(channel, iov, total, wake);
	if (rc)
		return rc;
	channel->spoke = true;
	atomic_fetch_add_explicit(&channel->peer->messages_out, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&channel->peer->bytes_out, total, memory_order_relaxed);
	return 0;
}

/* In. */

/* Asks for the end of the channel: when this returns, it is closed. */
static void channel_end(struct channel *channel, const char *reason)
{
	channel->peer->peers->events->disconnected(channel->peer, reason);
}

static void channel_reject(struct channel *channel, const char *reason)
{
	struct peer *peer = channel->peer;

	peer_rejected(peer->peers, peer, channel->endpoint, reason);
	channel_end(channel, reason);
}

static void dispatch(struct channel *channel, uint8_t type, const uint8_t *body, size_t len)
{
	struct peer *peer = channel->peer;
	struct peers *peers = peer->peers;
	char reason[64];
	struct wire_r r;

	if (type == TYPE_ALIVE)
		return;
	if (!peers->handlers[type].fn) {
		snprintf(reason, sizeof(reason), "nothing here handles message type %u", type);
		peer_rejected(peers, peer, channel->endpoint, reason);
		return;
	}
	wire_r_init(&r, body, len);
	peers->handlers[type].fn(peers->handlers[type].arg, peer->node,
				 atomic_load(&peer->incarnation), &r);
	if (r.bad) {
		snprintf(reason, sizeof(reason), "a message of type %u is malformed", type);
		peer_rejected(peers, peer, channel->endpoint, reason);
	}
}

static const char no_memory[] = "no memory to prove a message";

/* Returns NULL where the `len` bytes at `at` are followed by their HMAC, else why the channel has
   to end. */
static const char *check_hmac(struct channel *channel, const uint8_t *at, size_t len)
{
	uint8_t mac[HMAC_BYTES];

	hmac_begin(channel->in_mac);
	hmac_add(channel->in_mac, at, len);
	if (hmac_end(channel->in_mac, mac))
		return no_memory;
	return hmac_equal(mac, at + len) ? NULL
					 : "a message does not carry the right HMAC (altered)";
}

/* Ends the channel; the peer is blamed only where the fault is not our own. */
static void end_bad(struct channel *channel, const char *reason)
{
	if (reason == no_memory)
		channel_end(channel, reason);
	else
		channel_reject(channel, reason);
}

/* Decodes and checks the whole header at `at`. Returns NULL, or why the channel has to end. */
static const char *take_header(struct channel *channel, const uint8_t *at, size_t *body_len,
			       uint8_t *type)
{
	const char *bad = check_hmac(channel, at, HEADER_BYTES);
	uint64_t count;
	struct wire_r r;

	if (bad)
		return bad;
	wire_r_init(&r, at, HEADER_BYTES);
	*body_len = wire_get_u32(&r);
	count = wire_get_u64(&r);
	*type = wire_get_u8(&r);
	if (count != channel->in_count + 1)
		return "a message is out of turn (replayed, or one is missing)";
	return *body_len > PEER_MESSAGE_MAX_BYTES ? "a message is oversized" : NULL;
}

/*
 * Takes the message at `at`, of which `len` bytes are there. Returns its length, or 0: not whole
 * yet (*need: of the whole) or the channel has ended.
 */
static size_t take_message(struct channel *channel, const uint8_t *at, size_t len, size_t *need)
{
	size_t body_len, mac_pos;
	const char *bad;
	uint8_t type;

	*need = PROVED_BYTES;
	if (len < PROVED_BYTES)
		return 0;
	bad = take_header(channel, at, &body_len, &type);
	if (bad) {
		end_bad(channel, bad);
		return 0;
	}
	mac_pos = PROVED_BYTES + body_len;
	*need = mac_pos + HMAC_BYTES;
	if (len < *need)
		return 0;
	bad = check_hmac(channel, at, mac_pos);
	if (bad) {
		end_bad(channel, bad);
		return 0;
	}
	channel->in_count++;
	atomic_fetch_add_explicit(&channel->peer->messages_in, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&channel->peer->bytes_in, *need, memory_order_relaxed);
	dispatch(channel, type, at + PROVED_BYTES, body_len);
	return channel_is_closed(channel) ? 0 : *need;
}

/* Resizes the buffer to `cap` bytes; the bytes in it stay. */
static int resize_in(struct channel *channel, size_t cap)
{
	uint8_t *in = realloc(channel->in, cap);

	if (!in)
		return -ENOMEM;
	channel->in = in;
	channel->in_cap = cap;
	return 0;
}

/* Takes every whole message out of the buffer. False: the channel has ended. */
static bool take_messages(struct channel *channel)
{
	size_t pos = 0, need = 0, taken;

	do {
		taken = take_message(channel, channel->in + pos, channel->in_len - pos, &need);
		if (channel_is_closed(channel))
			return false;
		pos += taken;
	} while (taken);
	channel->in_len -= pos;
	if (pos && channel->in_len)
		memmove(channel->in, channel->in + pos, channel->in_len);
	if (need > channel->in_cap) {
		if (resize_in(channel, need)) {
			channel_end(channel, "no memory for a message");
			return false;
		}
	} else if (channel->in_cap > IN_SMALL_BYTES && channel->in_len == 0) {
		resize_in(channel, IN_SMALL_BYTES); /* shrinking: a failure costs nothing */
	}
	return true;
}

static void channel_ended(struct channel *channel, const char *reason)
{
	if (channel->in_len)
		channel_reject(channel, "it ended in the middle of a message (truncated)");
	else
		channel_end(channel, reason);
}

static void read_more(struct channel *channel)
{
	size_t turn = 0;

	while (turn < READ_TURN_BYTES) {
		size_t room = channel->in_cap - channel->in_len;
		ssize_t n = stream_read(&channel->stream, channel->in + channel->in_len, room);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			channel_ended(channel, n ? strerror((int)-n) : "it closed the connection");
			return;
		}
		channel->came += (size_t)n;
		channel->in_len += (size_t)n;
		turn += (size_t)n;
		if (!take_messages(channel) || (size_t)n < room)
			return; /* ended, or empty: the loop says when there is more */
	}
}

static void write_more(struct channel *channel)
{
	struct peer *peer = channel->peer;
	bool empty;
	int rc;

	channel->held = false;
	pthread_mutex_lock(&peer->lock);
	rc = channel->state == CHANNEL_BROKEN ? -EPIPE : flush_queue(channel);
	empty = STAILQ_EMPTY(&channel->queue);
	pthread_mutex_unlock(&peer->lock);
	if (rc) { /* messages that came before the end still count */
		read_more(channel);
		if (!channel_is_closed(channel))
			channel_ended(channel, strerror(-rc));
		return;
	}
	if (empty == channel->waits_writable)
		channel_wait(channel, !empty);
}

void channel_attend(struct channel *channel)
{
	write_more(channel);
}

bool channel_flush(struct channel *channel)
{
	bool held = channel->held;

	if (held)
		write_more(channel);
	return held;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct channel *channel = poll->data;

	if ((events & UV_READABLE) || status < 0)
		read_more(channel);
	/* On an error read says which one it is, once it has given all that came before. */
	if (!channel_is_closed(channel) && status < 0)
		read_more(channel);
	if (!channel_is_closed(channel) && status < 0)
		channel_ended(channel, uv_strerror(status));
	if (!channel_is_closed(channel) && (events & UV_WRITABLE || channel->held))
		write_more(channel);
}

static bool was_heard(struct channel *channel)
{
	bool heard = channel->in_count != channel->heard_count || channel->came >= HEARD_BYTES;

	channel->heard_count = channel->in_count;
	channel->came = 0;
	return heard;
}

void channel_tick(struct channel *channel)
{
	struct peer *peer = channel->peer;
	bool wake = false;

	/* Ticks that ran are counted, not time: where our own loop did not run (a stopped process,
	   a paused machine), that says nothing about the peer. */
	channel->silent_ticks = was_heard(channel) ? 0 : channel->silent_ticks + 1;
	if (channel->silent_ticks >= SILENT_TICKS) {
		if (channel->in_len)
			channel_reject(channel,
				       "a message does not become whole in 2 s (truncated)");
		else
			channel_end(channel, "it has been silent for 2 s");
		return;
	}
	pthread_mutex_lock(&peer->lock);
	if (!channel->spoke && STAILQ_EMPTY(&channel->queue))
		channel_send(channel, TYPE_ALIVE, NULL, 0, &wake);
	channel->spoke = false;
	pthread_mutex_unlock(&peer->lock);
	if (wake)
		loop_wake_send(&peer->peers->wake);
}
