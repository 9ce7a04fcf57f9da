/*
 * The proof of an RDMA connection. See proof.h.
 */
#include "proof.h"

#include <errno.h>
#include <string.h>

#include "base/wire.h"

#define PROOF_VERSION	   1
#define PROOF_FIELDS_BYTES (PROOF_BYTES - HMAC_BYTES)

/* Computes the HMAC over a label, the challenge, the request where `answer` is one, and the fields. */
static int proof_mac(const char *label, const uint8_t *request, const uint8_t *fields,
		     const uint8_t key[HMAC_BYTES], const uint8_t challenge[PROOF_CHALLENGE_BYTES],
		     uint8_t mac[HMAC_BYTES])
{
	uint8_t bytes[PROOF_CHALLENGE_BYTES + PROOF_BYTES + PROOF_FIELDS_BYTES];
	struct wire_w w;

	wire_w_init(&w, bytes, sizeof(bytes));
	wire_put_bytes(&w, challenge, PROOF_CHALLENGE_BYTES);
	if (request)
		wire_put_bytes(&w, request, PROOF_BYTES);
	wire_put_bytes(&w, fields, PROOF_FIELDS_BYTES);
	return hmac_derive(key, label, bytes, w.len, mac);
}

int proof_put_request(const struct proof_request *request, const uint8_t key[HMAC_BYTES],
		      const uint8_t challenge[PROOF_CHALLENGE_BYTES], uint8_t out[PROOF_BYTES])
{
	struct wire_w w;

	wire_w_init(&w, out, PROOF_BYTES);
	wire_put_u16(&w, PROOF_VERSION);
	wire_put_u8(&w, request->class);
	wire_put_u8(&w, 0);
	wire_put_u32(&w, request->node);
	wire_put_u64(&w, request->life);
	wire_put_u64(&w, request->counter);
	return proof_mac("request", NULL, out, key, challenge, out + PROOF_FIELDS_BYTES);
}

int proof_get_request(const void *data, size_t len, struct proof_request *request,
		      struct ramp_err *err)
{
	struct wire_r r;
	uint16_t version;
	uint8_t zero;

	if (!data || len != PROOF_BYTES)
		return ramp_err_set(err, EPROTO, "%zu bytes of private data, not %d", len,
				    PROOF_BYTES);
	wire_r_init(&r, data, len);
	version = wire_get_u16(&r);
	if (version != PROOF_VERSION)
		return ramp_err_set(err, EPROTONOSUPPORT, "version %u of the proof, not %d",
				    version, PROOF_VERSION);
	request->class = wire_get_u8(&r);
	zero = wire_get_u8(&r);
	request->node = wire_get_u32(&r);
	request->life = wire_get_u64(&r);
	request->counter = wire_get_u64(&r);
	if (zero || request->class < 1 || request->class > 2 || !request->node)
		return ramp_err_set(err, EPROTO, "private data that is no request");
	return 0;
}

int proof_check_request(const uint8_t data[PROOF_BYTES], const uint8_t key[HMAC_BYTES],
			const uint8_t challenge[PROOF_CHALLENGE_BYTES], struct ramp_err *err)
{
	uint8_t mac[HMAC_BYTES];
	int rc = proof_mac("request", NULL, data, key, challenge, mac);

	if (rc)
		return ramp_err_sys(err, -rc, "checking a proof");
	if (!hmac_equal(mac, data + PROOF_FIELDS_BYTES))
		return ramp_err_set(err, EKEYREJECTED,
				    "it does not know the key of the control connection");
	return 0;
}

int proof_put_answer(const struct proof_answer *answer, const uint8_t request[PROOF_BYTES],
		     const uint8_t key[HMAC_BYTES], const uint8_t challenge[PROOF_CHALLENGE_BYTES],
		     uint8_t out[PROOF_BYTES])
{
	static const uint8_t zeros[13];
	struct wire_w w;

	wire_w_init(&w, out, PROOF_BYTES);
	wire_put_u16(&w, PROOF_VERSION);
	wire_put_u8(&w, answer->reads);
	wire_put_bytes(&w, zeros, sizeof(zeros));
	wire_put_u64(&w, answer->life);
	return proof_mac("answer", request, out, key, challenge, out + PROOF_FIELDS_BYTES);
}

int proof_get_answer(const void *data, size_t len, const uint8_t request[PROOF_BYTES],
		     const uint8_t key[HMAC_BYTES], const uint8_t challenge[PROOF_CHALLENGE_BYTES],
		     struct proof_answer *answer, struct ramp_err *err)
{
	uint8_t mac[HMAC_BYTES], zeros[13];
	struct wire_r r;
	uint16_t version;
	int rc;

	if (!data || len < PROOF_BYTES)
		return ramp_err_set(err, EPROTO, "%zu bytes of private data, not %d", len,
				    PROOF_BYTES);
	rc = proof_mac("answer", request, data, key, challenge, mac);
	if (rc)
		return ramp_err_sys(err, -rc, "checking a proof");
	if (!hmac_equal(mac, (const uint8_t *)data + PROOF_FIELDS_BYTES))
		return ramp_err_set(err, EKEYREJECTED,
				    "it does not know the key of the control connection");
	wire_r_init(&r, data, PROOF_FIELDS_BYTES);
	version = wire_get_u16(&r);
	answer->reads = wire_get_u8(&r);
	wire_get_bytes(&r, zeros, sizeof(zeros));
	answer->life = wire_get_u64(&r);
	return version == PROOF_VERSION
		       ? 0
		       : ramp_err_set(err, EPROTONOSUPPORT, "version %u of the proof", version);
}
