/*
 * The hello of a new connection, as bytes; hello.h has the drawing.
 *
 * The steps, and the functions that make them (by hello_go):
 *
 *   dialer:    OPEN -> WAIT_OFFER [hello_next]   WAIT_OFFER -> WAIT_WELCOME [take_offer]
 *              WAIT_WELCOME -> PROVED [take_welcome]
 *   acceptor:  WAIT_OPEN -> WAIT_PROVE [take_open]   WAIT_PROVE -> PROVED [take_prove]
 *   any but PROVED -> FAILED [hello_failed]
 *
 * Happy path: each step is one frame {magic, version, step, length, payload}; hello_feed collects
 * exactly one frame, checks it, and makes the next, which hello_next gives.
 *
 * How it fails: hello_reject makes a REJECT that tells the other end why, and the reason for our
 * own log is worded in `err`. Nothing is retried here.
 */
#include "hello.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/wire.h"

#define HELLO_MAGIC	   UINT32_C(0x504d4152) /* "RAMP" */
#define HELLO_HEADER_BYTES 8

enum frame { FRAME_OPEN = 1, FRAME_OFFER, FRAME_PROVE, FRAME_WELCOME, FRAME_REJECT };

#define OPEN_BYTES    HELLO_NONCE_BYTES
#define OFFER_BYTES   (HELLO_NONCE_BYTES + HMAC_BYTES)
#define PROVE_BYTES   (HELLO_CLUSTER_BYTES + 4 + 4 + 8 + 8 + 1 + HMAC_BYTES)
#define WELCOME_BYTES (HELLO_CLUSTER_BYTES + 4 + 8 + 8 + HMAC_BYTES)
#define REJECT_BYTES  1

enum reject_reason {
	REJECT_MALFORMED = 1,
	REJECT_VERSION,
	REJECT_KEY,
	REJECT_CLUSTER,
	REJECT_NODE,
	REJECT_ADMIT,
	REJECT_INCARNATION,
};

static const char *const reject_texts[] = {
	[REJECT_MALFORMED] = "our hello is malformed",
	[REJECT_VERSION] = "our protocol version is another",
	[REJECT_KEY] = "our cluster key is another",
	[REJECT_CLUSTER] = "we are of another cluster",
	[REJECT_NODE] = "it is not the node that we dialed",
	[REJECT_ADMIT] = "we are no member that may connect there",
	[REJECT_INCARNATION] = "its incarnation is not the one it wanted",
};

static const char label_offer[] = "acceptor's offer";
static const char label_prove[] = "dialer's proof";
static const char label_welcome[] = "acceptor's welcome";

#define STEP(step) (1u << (step))

static const struct {
	const char *name;
	unsigned int next;
} hello_steps[] = {
	[HELLO_OPEN] = {"OPEN", STEP(HELLO_WAIT_OFFER)},
	[HELLO_WAIT_OPEN] = {"WAIT_OPEN", STEP(HELLO_WAIT_PROVE)},
	[HELLO_WAIT_OFFER] = {"WAIT_OFFER", STEP(HELLO_WAIT_WELCOME)},
	[HELLO_WAIT_PROVE] = {"WAIT_PROVE", STEP(HELLO_STEP_PROVED)},
	[HELLO_WAIT_WELCOME] = {"WAIT_WELCOME", STEP(HELLO_STEP_PROVED)},
	[HELLO_STEP_PROVED] = {"PROVED", 0},
	[HELLO_STEP_FAILED] = {"FAILED", 0},
};

/* Changes the step: the only function that does. Aborts on a step that the list does not have. */
static void hello_go(struct hello *hello, enum hello_step from, enum hello_step to)
{
	unsigned int next = hello_steps[from].next;

	if (next)
		next |= STEP(HELLO_STEP_FAILED);
	if (hello->step != from || !(next & STEP(to))) {
		log_error("hello: no step from %s (expected %s) to %s",
			  hello_steps[hello->step].name, hello_steps[from].name,
			  hello_steps[to].name);
		abort();
	}
	log_debug("hello: %s -> %s", hello_steps[from].name, hello_steps[to].name);
	hello->step = to;
}

int hello_self_init(struct hello_self *self, const uint8_t cluster_key[HMAC_BYTES],
		    struct ramp_err *err)
{
	int rc = hmac_derive(cluster_key, "rampfs hello", NULL, 0, self->key);

	return rc ? ramp_err_sys(err, -rc, "cluster key") : 0;
}

static void put_header(struct wire_w *w, enum frame type, size_t len)
{
	wire_put_u32(w, HELLO_MAGIC);
	wire_put_u16(w, PEER_VERSION);
	wire_put_u8(w, (uint8_t)type);
	wire_put_u8(w, (uint8_t)len);
}

static void transcript_add(struct hello *hello, const uint8_t *bytes, size_t len)
{
	/* The four frames together are shorter than the transcript. */
	memcpy(hello->transcript + hello->transcript_len, bytes, len);
	hello->transcript_len += len;
}

/* Computes the proof of one step: over its label and everything that went before. */
static int proof(const struct hello *hello, const char *label, uint8_t mac[HMAC_BYTES])
{
	return hmac_derive(hello->self->key, label, hello->transcript, hello->transcript_len, mac);
}

/* Makes a REJECT the bytes to send (there are no others: a frame is taken only when all is sent).
   Returns -err->code. */
static int hello_reject(struct hello *hello, enum reject_reason why, const struct ramp_err *err)
{
	struct wire_w w;

	wire_w_init(&w, hello->out, sizeof(hello->out));
	put_header(&w, FRAME_REJECT, REJECT_BYTES);
	wire_put_u8(&w, (uint8_t)why);
	hello->out_len = w.len;
	hello->out_pos = 0;
	return -err->code;
}

/* Completes the frame that is being built: with its proof where `label` is given. */
static int finish_frame(struct hello *hello, struct wire_w *w, const char *label)
{
	uint8_t mac[HMAC_BYTES];
	int rc;

	transcript_add(hello, w->buf, w->len);
	if (label) {
		rc = proof(hello, label, mac);
		if (rc)
			return rc;
		wire_put_bytes(w, mac, sizeof(mac));
		transcript_add(hello, mac, sizeof(mac));
	}
	hello->out_len = w->len;
	hello->out_pos = 0;
	return 0;
}

static int send_nonce(struct hello *hello, enum frame type, const char *label)
{
	uint8_t nonce[HELLO_NONCE_BYTES];
	struct wire_w w;

	if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		return -EIO;
	wire_w_init(&w, hello->out, sizeof(hello->out));
	put_header(&w, type, label ? OFFER_BYTES : OPEN_BYTES);
	wire_put_bytes(&w, nonce, sizeof(nonce));
	return finish_frame(hello, &w, label);
}

static int send_prove(struct hello *hello)
{
	const struct hello_self *self = hello->self;
	struct wire_w w;

	wire_w_init(&w, hello->out, sizeof(hello->out));
	put_header(&w, FRAME_PROVE, PROVE_BYTES);
	wire_put_bytes(&w, self->cluster_id, HELLO_CLUSTER_BYTES);
	wire_put_u32(&w, self->node);
	wire_put_u32(&w, hello->want_node);
	wire_put_u64(&w, self->incarnation);
	wire_put_u64(&w, self->instance);
	wire_put_u8(&w, (uint8_t)hello->want_class);
	return finish_frame(hello, &w, label_prove);
}

static int send_welcome(struct hello *hello)
{
	const struct hello_self *self = hello->self;
	struct wire_w w;

	wire_w_init(&w, hello->out, sizeof(hello->out));
	put_header(&w, FRAME_WELCOME, WELCOME_BYTES);
	wire_put_bytes(&w, self->cluster_id, HELLO_CLUSTER_BYTES);
	wire_put_u32(&w, self->node);
	wire_put_u64(&w, self->incarnation);
	wire_put_u64(&w, self->instance);
	return finish_frame(hello, &w, label_welcome);
}

/* Adds the frame in `in` to the transcript and checks the proof at its end. */
static int check_proof(struct hello *hello, const char *label, struct ramp_err *err)
{
	const uint8_t *sent = hello->in + hello->in_len - HMAC_BYTES;
	uint8_t mac[HMAC_BYTES];
	int rc;

	transcript_add(hello, hello->in, hello->in_len - HMAC_BYTES);
	rc = proof(hello, label, mac);
	if (rc)
		return ramp_err_sys(err, -rc, "HMAC of the hello");
	if (!hmac_equal(mac, sent)) {
		ramp_err_set(err, EKEYREJECTED, "it does not prove our cluster key");
		return hello_reject(hello, REJECT_KEY, err);
	}
	transcript_add(hello, sent, HMAC_BYTES);
	return 0;
}

static int check_cluster(struct hello *hello, const uint8_t cluster[HELLO_CLUSTER_BYTES],
			 struct ramp_err *err)
{
	if (memcmp(cluster, hello->self->cluster_id, HELLO_CLUSTER_BYTES) == 0)
		return 0;
	ramp_err_set(err, EPERM, "it is of another cluster");
	return hello_reject(hello, REJECT_CLUSTER, err);
}

static int take_open(struct hello *hello, struct ramp_err *err)
{
	int rc;

	transcript_add(hello, hello->in, hello->in_len);
	rc = send_nonce(hello, FRAME_OFFER, label_offer);
	if (rc)
		return ramp_err_sys(err, -rc, "making an offer");
	hello_go(hello, HELLO_WAIT_OPEN, HELLO_WAIT_PROVE);
	return 0;
}

static int take_offer(struct hello *hello, struct ramp_err *err)
{
	int rc = check_proof(hello, label_offer, err);

	if (rc)
		return rc;
	rc = send_prove(hello);
	if (rc)
		return ramp_err_sys(err, -rc, "making a proof");
	hello_go(hello, HELLO_WAIT_OFFER, HELLO_WAIT_WELCOME);
	return 0;
}

static int take_prove(struct hello *hello, struct ramp_err *err)
{
	struct hello_peer peer = {0};
	uint8_t cluster[HELLO_CLUSTER_BYTES], class;
	ramp_node_t want;
	struct wire_r r;
	int rc = check_proof(hello, label_prove, err);

	if (rc)
		return rc;
	wire_r_init(&r, hello->in + HELLO_HEADER_BYTES, PROVE_BYTES - HMAC_BYTES);
	wire_get_bytes(&r, cluster, sizeof(cluster));
	peer.node = wire_get_u32(&r);
	want = wire_get_u32(&r);
	peer.incarnation = wire_get_u64(&r);
	peer.instance = wire_get_u64(&r);
	class = wire_get_u8(&r);
	if (class != HELLO_JOIN) {
		rc = check_cluster(hello, cluster, err);
		if (rc)
			return rc;
	}
	if (!wire_r_done(&r) || class > HELLO_JOIN || peer.incarnation == 0 ||
	    (class == HELLO_JOIN && (peer.node || want))) {
		ramp_err_set(err, EPROTO, "its proof is malformed");
		return hello_reject(hello, REJECT_MALFORMED, err);
	}
	peer.class = (enum hello_class) class;
	/* This also keeps a node from being led to its own port. */
	if (class != HELLO_JOIN && (want != hello->self->node || peer.node == hello->self->node)) {
		ramp_err_set(err, ENODEV, "node %u wants node %u here, this is node %u", peer.node,
			     want, hello->self->node);
		return hello_reject(hello, REJECT_NODE, err);
	}
	hello->peer = peer;
	if (hello->admit && hello->admit(hello->arg, &peer, err))
		return hello_reject(hello, REJECT_ADMIT, err);
	rc = send_welcome(hello);
	if (rc)
		return ramp_err_sys(err, -rc, "making a welcome");
	hello_go(hello, HELLO_WAIT_PROVE, HELLO_STEP_PROVED);
	return 0;
}

static int take_welcome(struct hello *hello, struct ramp_err *err)
{
	struct hello_peer peer = {.class = hello->want_class};
	struct wire_r r;
	int rc = check_proof(hello, label_welcome, err);

	if (rc)
		return rc;
	wire_r_init(&r, hello->in + HELLO_HEADER_BYTES, WELCOME_BYTES - HMAC_BYTES);
	wire_get_bytes(&r, peer.cluster_id, sizeof(peer.cluster_id));
	if (hello->want_class != HELLO_JOIN) {
		rc = check_cluster(hello, peer.cluster_id, err);
		if (rc)
			return rc;
	}
	peer.node = wire_get_u32(&r);
	peer.incarnation = wire_get_u64(&r);
	peer.instance = wire_get_u64(&r);
	if (!wire_r_done(&r) || peer.incarnation == 0 ||
	    (hello->want_class != HELLO_JOIN && peer.node != hello->want_node)) {
		ramp_err_set(err, ENODEV, "node %u answers where node %u is wanted", peer.node,
			     hello->want_node);
		return hello_reject(hello, REJECT_NODE, err);
	}
	hello->peer = peer;
	if (hello->want_incarnation && peer.incarnation != hello->want_incarnation) {
		ramp_err_set(err, ESTALE, "node %u has another incarnation than the wanted one",
			     peer.node);
		return hello_reject(hello, REJECT_INCARNATION, err);
	}
	hello_go(hello, HELLO_WAIT_WELCOME, HELLO_STEP_PROVED);
	return 0;
}

static int take_reject(const struct hello *hello, unsigned int version, struct ramp_err *err)
{
	uint8_t why = hello->in[HELLO_HEADER_BYTES];

	if (version != PEER_VERSION)
		return ramp_err_set(err, EPROTONOSUPPORT,
				    "it speaks protocol version %u, this node %u", version,
				    PEER_VERSION);
	if (why >= sizeof(reject_texts) / sizeof(reject_texts[0]) || !reject_texts[why])
		why = REJECT_MALFORMED;
	return ramp_err_set(err, EACCES, "it rejects us: %s", reject_texts[why]);
}

struct frame_rule {
	enum frame type;
	size_t len;
};

/* The one frame that each step takes, besides REJECT. */
static const struct frame_rule frame_rules[] = {
	[HELLO_WAIT_OPEN] = {FRAME_OPEN, OPEN_BYTES},
	[HELLO_WAIT_OFFER] = {FRAME_OFFER, OFFER_BYTES},
	[HELLO_WAIT_PROVE] = {FRAME_PROVE, PROVE_BYTES},
	[HELLO_WAIT_WELCOME] = {FRAME_WELCOME, WELCOME_BYTES},
};

/* Checks the header in `in`; sets in_need to the bytes of the whole frame. */
static int check_header(struct hello *hello, struct ramp_err *err)
{
	const struct frame_rule *rule = &frame_rules[hello->step];
	unsigned int version, type, len;
	struct wire_r r;

	wire_r_init(&r, hello->in, HELLO_HEADER_BYTES);
	if (wire_get_u32(&r) != HELLO_MAGIC) {
		ramp_err_set(err, EPROTO, "it does not speak rampfs's protocol");
		return hello_reject(hello, REJECT_MALFORMED, err);
	}
	version = wire_get_u16(&r);
	type = wire_get_u8(&r);
	len = wire_get_u8(&r);
	hello->in_need = HELLO_HEADER_BYTES + len;
	if (type == FRAME_REJECT && len == REJECT_BYTES)
		return 0;
	if (version != PEER_VERSION) {
		ramp_err_set(err, EPROTONOSUPPORT, "it speaks protocol version %u, this node %u",
			     version, PEER_VERSION);
		return hello_reject(hello, REJECT_VERSION, err);
	}
	if (type != rule->type || len != rule->len) {
		ramp_err_set(err, EPROTO, "a hello frame of type %u and %u bytes is out of turn",
			     type, len);
		return hello_reject(hello, REJECT_MALFORMED, err);
	}
	return 0;
}

static int take_frame(struct hello *hello, struct ramp_err *err)
{
	struct wire_r r;
	int rc;

	if (hello->in[6] == FRAME_REJECT) {
		wire_r_init(&r, hello->in + 4, 2);
		return take_reject(hello, wire_get_u16(&r), err);
	}
	switch (hello->step) {
	case HELLO_WAIT_OPEN:
		rc = take_open(hello, err);
		break;
	case HELLO_WAIT_OFFER:
		rc = take_offer(hello, err);
		break;
	case HELLO_WAIT_PROVE:
		rc = take_prove(hello, err);
		break;
	default:
		rc = take_welcome(hello, err);
		break;
	}
	hello->in_len = 0;
	hello->in_need = HELLO_HEADER_BYTES;
	return rc;
}

static int hello_failed(struct hello *hello, int rc)
{
	hello_go(hello, hello->step, HELLO_STEP_FAILED);
	return rc;
}

enum hello_state hello_state(const struct hello *hello)
{
	if (hello->step == HELLO_STEP_FAILED)
		return HELLO_FAILED;
	if (hello->step == HELLO_OPEN || hello->out_pos < hello->out_len)
		return HELLO_SENDING;
	return hello->step == HELLO_STEP_PROVED ? HELLO_PROVED : HELLO_RECEIVING;
}

size_t hello_needs(const struct hello *hello)
{
	return hello_state(hello) == HELLO_RECEIVING ? hello->in_need - hello->in_len : 0;
}

int hello_feed(struct hello *hello, const void *data, size_t len, size_t *taken,
	       struct ramp_err *err)
{
	const uint8_t *at = data;
	struct ramp_err own;
	size_t need;
	int rc = 0;

	if (!err)
		err = &own;
	*taken = 0;
	if (hello->step == HELLO_STEP_FAILED)
		return ramp_err_set(err, EPROTO, "the hello has failed");
	while (!rc && *taken < len && (need = hello_needs(hello)) > 0) {
		size_t n = need < len - *taken ? need : len - *taken;

		memcpy(hello->in + hello->in_len, at + *taken, n);
		hello->in_len += n;
		*taken += n;
		if (hello->in_len < hello->in_need)
			continue;
		if (hello->in_len == HELLO_HEADER_BYTES)
			rc = check_header(hello, err);
		else
			rc = take_frame(hello, err);
	}
	return rc ? hello_failed(hello, rc) : 0;
}

int hello_next(struct hello *hello, const uint8_t **out, size_t *len, struct ramp_err *err)
{
	int rc;

	*len = 0;
	if (hello->step == HELLO_OPEN) {
		rc = send_nonce(hello, FRAME_OPEN, NULL);
		if (rc)
			return hello_failed(hello, ramp_err_sys(err, -rc, "making an opening"));
		hello_go(hello, HELLO_OPEN, HELLO_WAIT_OFFER);
	}
	*out = hello->out + hello->out_pos;
	*len = hello->out_len - hello->out_pos;
	return 0;
}

void hello_sent(struct hello *hello, size_t len)
{
	hello->out_pos += len;
	if (hello->out_pos == hello->out_len)
		hello->out_pos = hello->out_len = 0;
}

void hello_dial(struct hello *hello, const struct hello_self *self, ramp_node_t want_node,
		ramp_incarnation_t want_incarnation, enum hello_class class)
{
	*hello = (struct hello){
		.self = self,
		.step = HELLO_OPEN,
		.in_need = HELLO_HEADER_BYTES,
		.want_node = want_node,
		.want_incarnation = want_incarnation,
		.want_class = class,
	};
}

void hello_accept(struct hello *hello, const struct hello_self *self,
		  int (*admit)(void *arg, const struct hello_peer *peer, struct ramp_err *err),
		  void *arg)
{
	*hello = (struct hello){
		.self = self,
		.step = HELLO_WAIT_OPEN,
		.in_need = HELLO_HEADER_BYTES,
		.admit = admit,
		.arg = arg,
	};
}

int hello_session_key(const struct hello *hello, bool from_dialer, uint8_t key[HMAC_BYTES])
{
	return proof(hello,
		     from_dialer ? "session, dialer to acceptor" : "session, acceptor to dialer",
		     key);
}

int hello_secret(const struct hello *hello, uint8_t secret[HMAC_BYTES])
{
	return proof(hello, "secret of the session", secret);
}
