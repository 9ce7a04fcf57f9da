/*
 * Threads' caches of small blocks. A cache lies in the segment and outlives its thread: the next thread, in this process
 * or the next one, takes it with all that is in it. A block goes into a cache and out of it by one store, that of the
 * stack's top, so these need no log.
 */
#ifndef RAMP_HEAP_CACHE_H
#define RAMP_HEAP_CACHE_H

#include "slabs.h"

/* This thread's way into the heap that it used last. */
struct heap_thread {
	/* The heap, if its blocks may go through the stacks without a look (no debug heap); NULL otherwise. */
	const struct ramp_heap *fast;
	uint64_t epoch;
	uint64_t max;
	struct heap_cache *cache;
	const struct ramp_heap *heap;
	struct heap_process *p;
	struct heap_binding *first;
};
extern __thread struct heap_thread heap_thread __attribute__((tls_model("initial-exec")));

/* Returns this thread's way into that heap, or NULL and errno: ENODEV not open, or no memory for a cache. */
struct heap_thread *cache_bind(const struct ramp_heap *heap);
/* Takes up all caches that the segment has, for the threads of this process. Returns 0 or a negative errno. */
int cache_adopt(struct heap_process *p);

/* Puts blocks into an empty stack. Returns 0 or a negative errno: there is no memory. */
int cache_fill(struct heap_process *p, struct heap_cache *cache, unsigned int class);
/* Gives blocks back until `keep` are left. */
void cache_drain(struct heap_process *p, struct heap_cache *cache, unsigned int class,
		 uint32_t keep);
/* Gives back what is in the stacks of the caches that no thread has. */
void cache_drain_idle(struct heap_process *p);
/* Gives back what is in all stacks: no other thread is in a call. */
void cache_drain_all(struct heap_process *p);

/* Checks that the words of a cache are a cache's. */
bool cache_sound(const struct ramp_heap *heap, const struct heap_cache *cache);

static inline bool heap_current(const struct heap_thread *t, const struct ramp_heap *heap)
{
	return t->fast == heap &&
	       t->epoch == atomic_load_explicit(&heap_epoch, memory_order_relaxed);
}

/* Takes the top block; the caller knows that there is one. */
static inline void *stack_pop(struct heap_stack *stack)
{
	void **top = stack->top - 1, *block = *top;

	heap_store((uint64_t *)&stack->top, (uintptr_t)top);
	return block;
}

/* Puts a block on top; the caller knows that there is room. */
static inline void stack_push(struct heap_stack *stack, void *block)
{
	void **top = stack->top;

	heap_store((uint64_t *)top, (uintptr_t)block);
	heap_store((uint64_t *)&stack->top, (uintptr_t)(top + 1));
}

#endif
