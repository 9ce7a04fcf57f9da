/*
 * The proof of an RDMA connection: 56 bytes of private data in each direction, as many as the
 * connection manager of every device carries. Both ends know a key of their control connection
 * (peer_key), and the acceptor has sent 16 random bytes over it: so one round trip proves both, and
 * an end that can't prove itself holds nothing here.
 *
 *   request: u16 version, u8 class, u8 zero, u32 node, u64 life, u64 counter, 32 bytes HMAC
 *   answer:  u16 version, u8 reads, 13 zeros, u64 life, 32 bytes HMAC
 *
 * The HMAC of a request covers the bytes before it and the challenge; that of an answer covers the
 * request, too. A counter is used once in a life (accept.c). The length proves nothing: some devices
 * pad private data with zeros.
 *
 * Thread-safety: any thread; nothing is kept here.
 */
#ifndef RAMP_VERBS_PROOF_H
#define RAMP_VERBS_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hmac.h"
#include "base/ids.h"

#define PROOF_BYTES	      56
#define PROOF_CHALLENGE_BYTES 16
#define PROOF_LABEL	      "rampfs verbs" /* of peer_key */

struct proof_request {
	uint8_t class; /* enum tp_class */
	ramp_node_t node;
	uint64_t life, counter;
};

struct proof_answer {
	uint8_t reads; /* that the acceptor's device answers at a time */
	uint64_t life;
};

int proof_put_request(const struct proof_request *request, const uint8_t key[HMAC_BYTES],
		      const uint8_t challenge[PROOF_CHALLENGE_BYTES], uint8_t out[PROOF_BYTES]);
/* Reads a request, which is not proved by that. 0; -EPROTO, -EPROTONOSUPPORT. */
int proof_get_request(const void *data, size_t len, struct proof_request *request,
		      struct ramp_err *err);
/* 0; -EKEYREJECTED: it does not know the key. */
int proof_check_request(const uint8_t data[PROOF_BYTES], const uint8_t key[HMAC_BYTES],
			const uint8_t challenge[PROOF_CHALLENGE_BYTES], struct ramp_err *err);

int proof_put_answer(const struct proof_answer *answer, const uint8_t request[PROOF_BYTES],
		     const uint8_t key[HMAC_BYTES], const uint8_t challenge[PROOF_CHALLENGE_BYTES],
		     uint8_t out[PROOF_BYTES]);
/* Reads an answer to `request` and proves it. `data` may be padded. 0, or as above. */
int proof_get_answer(const void *data, size_t len, const uint8_t request[PROOF_BYTES],
		     const uint8_t key[HMAC_BYTES], const uint8_t challenge[PROOF_CHALLENGE_BYTES],
		     struct proof_answer *answer, struct ramp_err *err);

#endif
