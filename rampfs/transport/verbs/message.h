/*
 * The messages of the verbs transport over a control connection. As in proto.h, a body is a version
 * byte and the fields in the order of the struct; put_ encodes, get_ decodes a whole body and returns
 * 0, -EBADMSG or -ENOMEM. VERBS_WANTED has no fields.
 *
 * Thread-safety: any thread; nothing is kept here.
 */
#ifndef RAMP_VERBS_MESSAGE_H
#define RAMP_VERBS_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/wire.h"
#include "proof.h"
#include "transport/transport.h"

#define MESSAGE_REGIONS_MAX 1024u  /* in one message */
#define MESSAGE_CHUNKS_MAX  65536u /* of one key */
#define MESSAGE_SMALL_BYTES 128	   /* every message but REGIONS fits */

/* VERBS_AT: where the sender's adapter takes connections. port 0: it has none now. */
struct message_at {
	uint64_t life;
	struct sockaddr_storage address; /* with the port, of IPv4 or IPv6 */
	uint16_t port;
	uint8_t challenge[PROOF_CHALLENGE_BYTES];
	uint8_t reads; /* that it answers at a time on one connection */
};

/* REGIONS_WANTED: the reader has an RDMA connection, and reads under that key. */
struct message_wanted {
	struct tp_key key;
	uint64_t connection; /* of the reader, random: REGIONS says for which one it is */
	uint8_t class;	     /* enum tp_class */
};

/* REGIONS_DONE: the reader has all bytes before `upto`. */
struct message_done {
	struct tp_key key;
	uint64_t upto;
};

struct message_region {
	uint64_t offset, len; /* of the segment; whole pages */
	uint64_t
		address; /* of the remote memory; 0: it is not there any more (the reader has it) */
	uint32_t rkey;
};

/* REGIONS: regions [first, first + n) of those of the key. */
struct message_regions {
	struct tp_key key;
	uint64_t connection;
	uint64_t life;
	bool whole; /* there are no more: `first` + `n` is how many there are in all */
	uint32_t first, n;
	struct message_region *regions; /* decoded: the caller frees */
};

void message_put_wanted_at(struct wire_w *w);
int message_get_wanted_at(struct wire_r *r);
void message_put_at(struct wire_w *w, const struct message_at *m);
int message_get_at(struct wire_r *r, struct message_at *m);
void message_put_wanted(struct wire_w *w, const struct message_wanted *m);
int message_get_wanted(struct wire_r *r, struct message_wanted *m);
void message_put_done(struct wire_w *w, const struct message_done *m);
int message_get_done(struct wire_r *r, struct message_done *m);
/* Returns how many bytes it takes at most. */
size_t message_regions_bytes(const struct message_regions *m);
void message_put_regions(struct wire_w *w, const struct message_regions *m);
int message_get_regions(struct wire_r *r, struct message_regions *m);

#endif
