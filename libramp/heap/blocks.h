/*
 * Blocks as the public calls take and give them.
 *
 * A block that a call has taken and not returned yet is *held* in the thread's cache: a kill gives it back at the next
 * open. Calls that do more than one step (clear, copy, store an address) are undone as one thereby.
 */
#ifndef RAMP_HEAP_BLOCKS_H
#define RAMP_HEAP_BLOCKS_H

#include "cache.h"

#define BLOCK_ANY_SIZE SIZE_MAX

/* The class of a block of that size and alignment; HEAP_CLASSES: a large one. */
unsigned int block_class(size_t size, size_t align);

/* Takes a block, and holds it. Returns NULL and errno. */
void *block_take(struct heap_thread *t, size_t size, size_t align, bool zero);
/* The call that took the block is over: it is the program's. */
static inline void block_taken(struct heap_thread *t)
{
	heap_store(&t->cache->held, 0);
}

/*
 * Looks at a block that the program names. Returns false where it is none, is free, or was not asked for with that size and
 * alignment (BLOCK_ANY_SIZE: unknown), after naming that.
 */
bool block_check(struct heap_thread *t, const void *block, size_t size, size_t align,
		 struct heap_block *is);
/* Gives back a block that block_check has found; with `held`, the block that is held is the program's then, or (the same)
   nothing is. */
void block_give(struct heap_thread *t, void *block, const struct heap_block *is, bool held);
/* How much of it the program may use. */
size_t block_usable(const struct heap_process *p, const void *block, const struct heap_block *is);
/* Changes the size in place. Returns whether that was possible. */
bool block_resize(struct heap_thread *t, const struct heap_block *is, size_t size);

#endif
