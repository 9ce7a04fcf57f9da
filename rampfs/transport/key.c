/*
 * Keys of exported memory. See transport.h.
 */
#include "transport.h"

#include <string.h>

#include "base/wire.h"

struct tp_key tp_key_of_attempt(ramp_segment_t segment, struct ramp_attempt k)
{
	struct tp_key key = {.segment = segment};
	struct wire_w w;

	wire_w_init(&w, key.grant, sizeof(key.grant));
	wire_put_u64(&w, k.source_id);
	wire_put_u64(&w, k.ticket);
	return key;
}

bool tp_key_equal(const struct tp_key *a, const struct tp_key *b)
{
	uint64_t of_a[TP_GRANT_BYTES / 8], of_b[TP_GRANT_BYTES / 8];

	memcpy(of_a, a->grant, sizeof(of_a));
	memcpy(of_b, b->grant, sizeof(of_b));
	return ((a->segment ^ b->segment) | (of_a[0] ^ of_b[0]) | (of_a[1] ^ of_b[1])) == 0;
}
