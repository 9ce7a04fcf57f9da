#include "pull_core.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "streams.h"

struct pull *pull_new(const struct pull_config *config)
{
	struct pull *pull = calloc(1, sizeof(*pull));

	if (!pull)
		return NULL;
	pull->config = *config;
	pull->n_pullers = PULLER_PREFETCH + streams_most(config->streams);
	for (unsigned i = 0; i < PULLER_MAX; i++)
		pull->wake[i] = -1;
	pull->guard_wake = -1;
	atomic_init(&pull->streams, config->streams ? streams_most(config->streams) : 1);
	pthread_mutex_init(&pull->lock, NULL);
	pthread_cond_init(&pull->released, NULL);
	pull->zeros = -1;
	TAILQ_INIT(&pull->entries);
	rate_init(&pull->limit, config->limit_bytes_s);
	for (size_t i = 0; i < PULL_PEERS; i++)
		rate_init(&pull->tallies[i].limit, 0);
	TAILQ_INIT(&pull->clients);
	TAILQ_INIT(&pull->gone);
	return pull;
}

void pull_free(struct pull *pull)
{
	pthread_cond_destroy(&pull->released);
	pthread_mutex_destroy(&pull->lock);
	rate_destroy(&pull->limit);
	for (size_t i = 0; i < PULL_PEERS; i++)
		rate_destroy(&pull->tallies[i].limit);
	if (pull->zeros >= 0)
		close(pull->zeros);
	free(pull);
}

uint64_t pull_now_us(void)
{
	return clock_us();
}

uint64_t pull_now_ms(void)
{
	return clock_ms();
}

void pull_sooner(int *wait_ms, uint64_t at, uint64_t now)
{
	int in = at > now ? (int)(at - now) : 0;

	if (*wait_ms < 0 || in < *wait_ms)
		*wait_ms = in;
}

void pull_wake(struct pull *pull, int which)
{
	/* Fails only when the counter is full: then the thread is awake. */
	(void)!write(pull->wake[which], &(uint64_t){1}, sizeof(uint64_t));
}

void pull_wake_pager(struct pull *pull)
{
	pull_wake(pull, PULLER_PAGER);
}

void pull_wake_prefetch(struct pull *pull)
{
	pull_wake(pull, PULLER_PREFETCH);
}

void pull_wake_all(struct pull *pull)
{
	for (unsigned i = 0; i < pull->n_pullers; i++)
		pull_wake(pull, (int)i);
}

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
