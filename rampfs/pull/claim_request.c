#include "claim_request.h"

#define CLAIM_MS     300u /* a parked writer asks again every PARK_TICK_MS at the latest */
#define CLAIM_MAX_MS 2000u

void claim_slot_init(struct claim_slot *slot)
{
	pthread_mutex_init(&slot->lock, NULL);
}

void claim_slot_destroy(struct claim_slot *slot)
{
	pthread_mutex_destroy(&slot->lock);
}

/*
 * Of two writers the first has its turn before the other, unless the other asks for those pages,
 * too. Where programs touch page after page there, a request may never be met: then the prefetch
 * continues for as long as it had to wait.
 */
void claim_request_make(struct claim_slot *slot, uint64_t from, uint64_t to, uint64_t now_ms)
{
	struct claim_request *request = &slot->request;
	uint64_t since;

	pthread_mutex_lock(&slot->lock);
	since = now_ms < request->since_ms + 2 * CLAIM_MAX_MS ? request->since_ms : now_ms;
	if (now_ms < since + CLAIM_MAX_MS &&
	    (request->until_ms <= now_ms || (from <= request->from && to >= request->to)))
		*request = (struct claim_request){
			.from = from, .to = to, .since_ms = since, .until_ms = now_ms + CLAIM_MS};
	pthread_mutex_unlock(&slot->lock);
}

void claim_request_end(struct claim_slot *slot, uint64_t from, uint64_t to)
{
	struct claim_request *request = &slot->request;

	pthread_mutex_lock(&slot->lock);
	if (from <= request->from && to >= request->to)
		*request = (struct claim_request){0};
	pthread_mutex_unlock(&slot->lock);
}

struct claim_request claim_request_at(struct claim_slot *slot, uint64_t now_ms)
{
	struct claim_request request;

	pthread_mutex_lock(&slot->lock);
	request = slot->request;
	pthread_mutex_unlock(&slot->lock);
	return request.until_ms > now_ms ? request : (struct claim_request){0};
}

uint64_t claim_request_leaves(const struct claim_request *request, uint64_t first, uint64_t count)
{
	if (!request->until_ms || first >= request->to || first + count <= request->from)
		return count;
	return first < request->from ? request->from - first : 0;
}
