/*
 * What all files of this room share: clocks, waking the two threads, counters.
 */
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "pull_impl.h"

uint64_t pull_now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t pull_now_ms(void)
{
	return pull_now_us() / 1000;
}

void pull_sooner(int *wait_ms, uint64_t at, uint64_t now)
{
	int in = at > now ? (int)(at - now) : 0;

	if (*wait_ms < 0 || in < *wait_ms)
		*wait_ms = in;
}

void puller_wake(struct puller *puller)
{
	/* Can only fail when the counter is full: it is awake then. */
	(void)!write(puller->wake, &(uint64_t){1}, sizeof(uint64_t));
}

void pull_wake_both(struct pull *pull)
{
	puller_wake(&pull->pager);
	puller_wake(&pull->prefetch);
}

/* Both threads take places; a node has one. More nodes than places: those are not told apart. */
struct pull_tally *pull_tally_of(struct pull *pull, ramp_node_t node)
{
	for (size_t i = 0; i < PULL_PEERS; i++) {
		ramp_node_t none = 0;

		if (atomic_compare_exchange_strong(&pull->tallies[i].node, &none, node) ||
		    none == node)
			return &pull->tallies[i];
	}
	return &pull->tallies[PULL_PEERS - 1];
}

void pull_count_fault(struct pull *pull, uint64_t since_us)
{
	uint64_t us = pull_now_us() - since_us;
	unsigned bucket = us ? 64 - (unsigned)__builtin_clzll(us) : 0;

	atomic_fetch_add(&pull->faults_us, us);
	atomic_fetch_add(&pull->fault_us[bucket < PULL_HISTOGRAM ? bucket : PULL_HISTOGRAM - 1], 1);
}
