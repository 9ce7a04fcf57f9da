/*
 * Departures: a program says that it has let go of a segment that it was asked for (QUIESCED).
 *
 * It fails where a call of a heap in the segment has not returned: that thread is between two stores
 * of one operation.
 */
#include <errno.h>
#include <stdint.h>

#include "error.h"
#include "include/ramp_heap.h"
#include "list.h"
#include "watch.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int ramp_quiesced(struct ramp_watch *watch, uint64_t id)
{
	struct session_msg msg = {.type = SESSION_QUIESCED, .segment = id};
	struct ramp_info info;
	int rc = list_find(watch_cluster(watch), id, NULL, &info);

	if (rc)
		return error_set(-rc, "ramp_quiesced", NULL);
	if (info.addr && ramp_heap_in_call((void *)(uintptr_t)info.addr, info.extent))
		return error_set(EAGAIN, info.name, "a call of its heap has not returned yet");
	rc = watch_send(watch, &msg);
	if (rc == -ESTALE)
		return error_set(ESTALE, info.name,
				 "the daemon that asked has ended, and the move with it");
	return rc ? error_set(-rc, "ramp_quiesced", "the daemon can't be told") : error_none();
}
