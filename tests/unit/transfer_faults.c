/*
 * Faults at the boundaries, caught at link time: the code under test calls peer_send and gets
 * __wrap_peer_send here, and so on.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/record.h"
#include "memory/reserve.h"
#include "transfer/link_speed.h"
#include "transfer_world.h"
#include "transport/peers/peer.h"

#define LATE_US 150000

int __real_peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body,
		     size_t len);
int __wrap_peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body,
		     size_t len);
int __real_record_change(struct seg *seg, const struct record *record, struct ramp_err *err);
int __wrap_record_change(struct seg *seg, const struct record *record, struct ramp_err *err);
int __real_store_remove(struct seg *seg, bool prove, struct ramp_err *err);
int __wrap_store_remove(struct seg *seg, bool prove, struct ramp_err *err);
int __real_reserve_memory(struct seg *seg, uint64_t size_bytes, const struct data_range *ranges,
			  uint32_t count, uint64_t slack_bytes, struct ramp_err *err);
int __wrap_reserve_memory(struct seg *seg, uint64_t size_bytes, const struct data_range *ranges,
			  uint32_t count, uint64_t slack_bytes, struct ramp_err *err);
int __real_populated_list(struct seg *seg, struct data_range *ranges, uint32_t max, uint32_t *count,
			  uint64_t *populated_bytes, struct ramp_err *err);
int __wrap_populated_list(struct seg *seg, struct data_range *ranges, uint32_t max, uint32_t *count,
			  uint64_t *populated_bytes, struct ramp_err *err);
uint64_t __real_link_speed(const struct transfers *t, ramp_node_t node);
uint64_t __wrap_link_speed(const struct transfers *t, ramp_node_t node);
void __real_collapse_segment(struct seg *seg, const atomic_bool *stop, collapsed_fn *fn, void *arg);
void __wrap_collapse_segment(struct seg *seg, const atomic_bool *stop, collapsed_fn *fn, void *arg);

enum what fault_hit(uint32_t point)
{
	struct fault *fault = &world->fault[world_self()];
	unsigned hit;

	if (atomic_load(&fault->point) != point)
		return 0;
	hit = atomic_fetch_add(&fault->hits, 1);
	if (hit < fault->skip || hit >= fault->skip + fault->times)
		return 0;
	if (fault->what == DO_KILL) {
		kill(getpid(), SIGKILL);
		for (;;)
			pause();
	}
	return fault->what;
}

struct late {
	struct peers *peers;
	ramp_node_t node;
	uint8_t type;
	size_t len;
	uint8_t body[];
};

static atomic_uint n_late;

static void *send_late(void *arg)
{
	struct late *late = arg;

	usleep(LATE_US);
	if (atomic_load(&world->running[world_self()]))
		__real_peer_send(late->peers, late->node, late->type, late->body, late->len);
	free(late);
	atomic_fetch_sub(&n_late, 1);
	return NULL;
}

void fault_late_wait(void)
{
	while (atomic_load(&n_late))
		usleep(1000);
}

static void delay(struct peers *peers, ramp_node_t node, uint8_t type, const void *body, size_t len)
{
	struct late *late = malloc(sizeof(*late) + len);
	pthread_t thread;

	late->peers = peers;
	late->node = node;
	late->type = type;
	late->len = len;
	memcpy(late->body, body, len);
	atomic_fetch_add(&n_late, 1);
	pthread_create(&thread, NULL, send_late, late);
	pthread_detach(thread);
}

static enum what chaos(void)
{
	unsigned per_mille = atomic_load(&world->chaos_per_mille);

	if (per_mille == 0 || ramp_random64() % 1000 >= per_mille)
		return 0;
	return DO_DROP + (enum what)(ramp_random64() % 3);
}

int __wrap_peer_send(struct peers *peers, ramp_node_t node, uint8_t type, const void *body,
		     size_t len)
{
	enum what what = fault_hit(POINT(AT_SEND, type));

	if (!what)
		what = chaos();
	if (what == DO_DROP)
		return 0;
	if (what == DO_DELAY) {
		delay(peers, node, type, body, len);
		return 0;
	}
	if (what == DO_DOUBLE)
		__real_peer_send(peers, node, type, body, len);
	return __real_peer_send(peers, node, type, body, len);
}

int __wrap_record_change(struct seg *seg, const struct record *record, struct ramp_err *err)
{
	int rc;

	if (fault_hit(POINT(AT_RECORD, record->kind)) == DO_DELAY)
		usleep(100000);
	rc = __real_record_change(seg, record, err);
	fault_hit(POINT(AFTER_RECORD, record->kind));
	return rc;
}

int __wrap_store_remove(struct seg *seg, bool prove, struct ramp_err *err)
{
	int rc;

	fault_hit(POINT(AT_REMOVE, 0));
	rc = __real_store_remove(seg, prove, err);
	fault_hit(POINT(AFTER_REMOVE, 0));
	return rc;
}

static void hold_here(uint32_t point)
{
	if (fault_hit(point) == DO_DELAY)
		while (atomic_load(&world->hold))
			usleep(1000);
}

int __wrap_populated_list(struct seg *seg, struct data_range *ranges, uint32_t max, uint32_t *count,
			  uint64_t *populated_bytes, struct ramp_err *err)
{
	hold_here(POINT(AT_SCAN, 0));
	return __real_populated_list(seg, ranges, max, count, populated_bytes, err);
}

int __wrap_reserve_memory(struct seg *seg, uint64_t size_bytes, const struct data_range *ranges,
			  uint32_t count, uint64_t slack_bytes, struct ramp_err *err)
{
	hold_here(POINT(AT_RESERVE, 0));
	return __real_reserve_memory(seg, size_bytes, ranges, count, slack_bytes, err);
}

void __wrap_collapse_segment(struct seg *seg, const atomic_bool *stop, collapsed_fn *fn, void *arg)
{
	while (atomic_load(&world->hold_collapse) && !atomic_load(stop))
		usleep(1000);
	__real_collapse_segment(seg, stop, fn, arg);
}

uint64_t __wrap_link_speed(const struct transfers *t, ramp_node_t node)
{
	uint64_t bytes_s = atomic_load(&world->link_bytes_s);

	return bytes_s ? bytes_s : __real_link_speed(t, node);
}
