#include "map_queue.h"

bool map_queue_add(struct map_queue *queue, const struct map_request *request)
{
	struct map_request *at;

	if (queue->n == MAP_QUEUE_MAX)
		return false;
	at = &queue->requests[(queue->first + queue->n++) % MAP_QUEUE_MAX];
	*at = *request;
	fault_waiter_get(&at->waiter);
	trace_get(at->trace);
	return true;
}

bool map_queue_is_full(const struct map_queue *queue)
{
	return queue->n == MAP_QUEUE_MAX;
}

struct map_request map_queue_take(struct map_queue *queue)
{
	struct map_request request = queue->requests[queue->first];

	queue->first = (queue->first + 1) % MAP_QUEUE_MAX;
	queue->n--;
	return request;
}

void map_request_release(struct map_request *request)
{
	fault_waiter_put(&request->waiter);
	trace_put(request->trace);
}
