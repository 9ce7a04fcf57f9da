/*
 * The calls that take and give blocks. Small ones go through the thread's cache without a lock; all else is in blocks.c.
 */
#include <errno.h>
#include <string.h>

#include "blocks.h"

#define HEAP_LIKELY(x) __builtin_expect(!!(x), 1)

/* ---- take ----------------------------------------------------------------------------------- */

static __attribute__((noinline)) void *heap_take(struct ramp_heap *heap, size_t size, size_t align,
						 bool zero)
{
	struct heap_thread *t = cache_bind(heap);
	void *block;

	if (!t)
		return NULL;
	process_enter(t->p);
	block = block_take(t, size, align, zero);
	if (block)
		block_taken(t);
	process_leave(t->p);
	return block;
}

void *ramp_heap_malloc(struct ramp_heap *heap, size_t size)
{
	struct heap_thread *t = &heap_thread;

	if (HEAP_LIKELY(heap_current(t, heap) && size <= HEAP_SMALL_MAX)) {
		struct heap_stack *stack = &t->cache->stack[heap_class(size)];

		if (HEAP_LIKELY(stack->top > stack->low))
			return stack_pop(stack);
	}
	return heap_take(heap, size, 16, false);
}

void *ramp_heap_calloc(struct ramp_heap *heap, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return heap_take(heap, bytes, 16, true);
}

void *ramp_heap_aligned_alloc(struct ramp_heap *heap, size_t align, size_t size)
{
	if (!align || align & (align - 1)) {
		errno = EINVAL;
		return NULL;
	}
	return heap_take(heap, size, align < 16 ? 16 : align, false);
}

void *ramp_heap_alloc_to(struct ramp_heap *heap, void **to, size_t size)
{
	struct heap_thread *t = cache_bind(heap);
	struct heap_step step;
	void *block;

	if (!t)
		return NULL;
	if (!ramp_heap_contains(heap, to) || (uintptr_t)to % sizeof(*to)) {
		errno = EINVAL;
		return NULL;
	}
	process_enter(t->p);
	block = block_take(t, size, 16, false);
	if (block) {
		step = step_begin(t->p, &t->cache->log);
		step_put(&step, (uint64_t *)to, (uintptr_t)block);
		step_put(&step, &t->cache->held, 0);
		step_done(&step);
	}
	process_leave(t->p);
	return block;
}

/* ---- give ----------------------------------------------------------------------------------- */

static __attribute__((noinline)) void heap_give(struct ramp_heap *heap, void *block, size_t size,
						size_t align)
{
	struct heap_thread *t = cache_bind(heap);
	struct heap_block is;

	if (!t)
		return;
	process_enter(t->p);
	if (block_check(t, block, size, align, &is))
		block_give(t, block, &is, false);
	process_leave(t->p);
}

/* Puts a block into the thread's cache, where there is room and it is not the one that came there last. */
static inline bool heap_give_fast(struct heap_stack *stack, void *block)
{
	if (!HEAP_LIKELY(stack->top < stack->high && stack->top[-1] != block))
		return false;
	stack_push(stack, block);
	return true;
}

void ramp_heap_free(struct ramp_heap *heap, void *block)
{
	struct heap_thread *t = &heap_thread;
	uint64_t offset = (uintptr_t)block - (uintptr_t)heap;

	if (!block)
		return;
	if (HEAP_LIKELY(heap_current(t, heap) && offset < t->max)) {
		uint64_t word = heap_desc(heap, offset >> GRANULE_SHIFT)->word;

		if (HEAP_LIKELY(DESC_KIND(word) == HEAP_SLAB && DESC_CLASS(word) < HEAP_CLASSES) &&
		    heap_give_fast(&t->cache->stack[DESC_CLASS(word)], block))
			return;
	}
	heap_give(heap, block, BLOCK_ANY_SIZE, 16);
}

void ramp_heap_free_sized(struct ramp_heap *heap, void *block, size_t size)
{
	struct heap_thread *t = &heap_thread;

	if (!block)
		return;
	if (HEAP_LIKELY(heap_current(t, heap) && size <= HEAP_SMALL_MAX) &&
	    heap_give_fast(&t->cache->stack[heap_class(size)], block))
		return;
	heap_give(heap, block, size, 16);
}

void ramp_heap_free_aligned_sized(struct ramp_heap *heap, void *block, size_t align, size_t size)
{
	if (align <= 16)
		ramp_heap_free_sized(heap, block, size);
	else if (block)
		heap_give(heap, block, size, align);
}

void ramp_heap_free_from(struct ramp_heap *heap, void **from)
{
	struct heap_thread *t = cache_bind(heap);
	struct heap_block is;
	struct heap_step step;
	void *block;

	if (!t)
		return;
	if (!ramp_heap_contains(heap, from) || (uintptr_t)from % sizeof(*from)) {
		process_misuse(t->p, "free_from: %p is not in the heap at %p", (void *)from,
			       (void *)heap);
		return;
	}
	block = *from;
	if (!block || !block_check(t, block, BLOCK_ANY_SIZE, 16, &is))
		return;
	process_enter(t->p);
	step = step_begin(t->p, &t->cache->log);
	step_put(&step, (uint64_t *)from, 0);
	step_put(&step, &t->cache->held, (uintptr_t)block);
	step_done(&step);
	block_give(t, block, &is, true);
	process_leave(t->p);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

size_t ramp_heap_usable_size(struct ramp_heap *heap, const void *block)
{
	struct heap_thread *t = block ? cache_bind(heap) : NULL;
	struct heap_block is;

	if (!t)
		return 0;
	is = slabs_look(t->p, block);
	if (is.kind == HEAP_INSIDE) {
		slabs_misuse(t->p, block, &is);
		return 0;
	}
	return block_usable(t->p, block, &is);
}

void *ramp_heap_realloc(struct ramp_heap *heap, void *block, size_t size)
{
	struct heap_thread *t;
	struct heap_block is;
	size_t has;
	void *other;

	if (!block)
		return ramp_heap_malloc(heap, size);
	t = cache_bind(heap);
	if (!t)
		return NULL;
	if (!block_check(t, block, BLOCK_ANY_SIZE, 16, &is)) {
		errno = EINVAL;
		return NULL;
	}
	process_enter(t->p);
	other = block_resize(t, &is, size) ? block : block_take(t, size, 16, false);
	if (other && other != block) {
		has = block_usable(t->p, block, &is);
		memcpy(other, block, has < size ? has : size);
		block_give(t, block, &is, true);
	}
	process_leave(t->p);
	return other;
}

int ramp_heap_in_call(const void *address, size_t length)
{
	return process_in_call(address, length);
}
