/*
 * Readers of this node's tables, from any thread: the state behind the reading functions of meta.h.
 */
#ifndef RAMP_META_META_READ_H
#define RAMP_META_META_READ_H

#include <pthread.h>

struct row_cache;

struct meta_readers {
	struct row_cache *cache;
	pthread_mutex_t lock;
	struct idle_reader *idle; /* protected by lock */
};
/* readers->cache is NULL afterwards: no memory. */
void readers_init(struct meta_readers *readers);
/* Closes the idle readers. No reading function may be under way. */
void readers_close(struct meta_readers *readers);

#endif
