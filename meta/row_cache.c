#include "row_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS 1024u /* untouched ones take no memory */
#define NODES	 64u

struct row_cache {
	pthread_mutex_t lock; /* protects the rest */
	uint64_t turn;	      /* transactions that changed rows so far */
	bool changes;	      /* one is under way that changes rows, */
	bool changes_all;     /* and any of them */
	/* By number. */
	bool has_segment[SEGMENTS], changes_segment[SEGMENTS], has_node[NODES];
	struct node_row nodes[NODES];
	struct segment_row segments[SEGMENTS];
};

struct row_cache *row_cache_open(void)
{
	struct row_cache *cache = calloc(1, sizeof(*cache));

	if (cache)
		pthread_mutex_init(&cache->lock, NULL);
	return cache;
}

void row_cache_close(struct row_cache *cache)
{
	if (cache)
		pthread_mutex_destroy(&cache->lock);
	free(cache);
}

bool row_cache_segment(struct row_cache *cache, ramp_segment_t id, struct segment_row *row,
		       uint64_t *turn)
{
	size_t at = id % SEGMENTS;
	bool there;

	pthread_mutex_lock(&cache->lock);
	*turn = cache->turn;
	there = cache->has_segment[at] && cache->segments[at].id == id;
	if (there)
		*row = cache->segments[at];
	pthread_mutex_unlock(&cache->lock);
	return there;
}

bool row_cache_node(struct row_cache *cache, ramp_node_t node, struct node_row *row, uint64_t *turn)
{
	size_t at = node % NODES;
	bool there;

	pthread_mutex_lock(&cache->lock);
	*turn = cache->turn;
	there = cache->has_node[at] && cache->nodes[at].node == node;
	if (there)
		*row = cache->nodes[at];
	pthread_mutex_unlock(&cache->lock);
	return there;
}

/* The lock is held. */
static bool is_as_of(const struct row_cache *cache, uint64_t turn)
{
	return turn == cache->turn && !cache->changes_all;
}

void row_cache_put_segment(struct row_cache *cache, const struct segment_row *row, uint64_t turn)
{
	size_t at = row->id % SEGMENTS;

	pthread_mutex_lock(&cache->lock);
	if (is_as_of(cache, turn) && !cache->changes_segment[at]) {
		cache->segments[at] = *row;
		cache->has_segment[at] = true;
	}
	pthread_mutex_unlock(&cache->lock);
}

void row_cache_put_node(struct row_cache *cache, const struct node_row *row, uint64_t turn)
{
	size_t at = row->node % NODES;

	pthread_mutex_lock(&cache->lock);
	if (is_as_of(cache, turn)) {
		cache->nodes[at] = *row;
		cache->has_node[at] = true;
	}
	pthread_mutex_unlock(&cache->lock);
}

void row_cache_changes(struct row_cache *cache, ramp_segment_t id)
{
	pthread_mutex_lock(&cache->lock);
	cache->changes = true;
	if (id) {
		cache->has_segment[id % SEGMENTS] = false;
		cache->changes_segment[id % SEGMENTS] = true;
	} else {
		cache->changes_all = true;
		memset(cache->has_segment, 0, sizeof(cache->has_segment));
		memset(cache->has_node, 0, sizeof(cache->has_node));
	}
	pthread_mutex_unlock(&cache->lock);
}

void row_cache_committed(struct row_cache *cache)
{
	pthread_mutex_lock(&cache->lock);
	if (cache->changes) {
		cache->turn++;
		memset(cache->changes_segment, 0, sizeof(cache->changes_segment));
	}
	cache->changes = cache->changes_all = false;
	pthread_mutex_unlock(&cache->lock);
}
