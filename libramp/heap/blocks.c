#include "blocks.h"

#include <errno.h>
#include <string.h>

#include "guard.h"

unsigned int block_class(size_t size, size_t align)
{
	unsigned int class;

	if (size < align)
		size = align;
	if (size > HEAP_SMALL_MAX || align > GRANULE)
		return HEAP_CLASSES;
	class = heap_class(size);
	while (heap_class_bytes(class) & (align - 1))
		class ++;
	return class;
}

/* ---- take ----------------------------------------------------------------------------------- */

static void *block_take_small(struct heap_thread *t, unsigned int class, size_t zeros)
{
	struct heap_stack *stack = &t->cache->stack[class];
	struct heap_step step = step_begin(t->p, &t->cache->log);
	void *block;

	if (stack->top == stack->low) {
		int rc = cache_fill(t->p, t->cache, class);

		if (rc) {
			errno = -rc;
			return NULL;
		}
	}
	block = stack->top[-1];
	memset(block, 0, zeros);
	step_put(&step, (uint64_t *)&stack->top, (uintptr_t)(stack->top - 1));
	step_put(&step, &t->cache->held, (uintptr_t)block);
	step_done(&step);
	return block;
}

static void *block_take_large(struct heap_thread *t, size_t size, size_t align, size_t zeros)
{
	struct heap_step step = step_begin(t->p, &t->cache->log);
	uint64_t n = heap_granules_for(size ? size : 1), granule;
	bool zero;
	int rc;

	granules_lock(&step);
	rc = granules_take(&step, n, align > GRANULE ? align >> GRANULE_SHIFT : 1, &granule, &zero);
	if (rc) {
		granules_undo(&step);
		errno = -rc;
		return NULL;
	}
	step_put(&step, &heap_desc(t->p->heap, granule)->word, heap_word(HEAP_LARGE, 0, 0, n));
	step_put(&step, &t->cache->held, (uintptr_t)heap_address(t->p->heap, granule));
	granules_done(&step);
	if (!zero || t->p->debug)
		memset(heap_address(t->p->heap, granule), 0, zeros);
	return heap_address(t->p->heap, granule);
}

/* In a debug heap no block stays in a cache: each is looked at when it is taken. */
static void *block_take_small_debug(struct heap_thread *t, unsigned int class, size_t zeros)
{
	struct heap_step step = step_begin(t->p, &t->cache->log);
	void *block = NULL;
	bool untouched;
	int rc;

	pthread_mutex_lock(&t->p->class[class]);
	rc = slabs_pull(&step, class, &block, 1, true);
	if (rc < 0) {
		granules_undo(&step);
		pthread_mutex_unlock(&t->p->class[class]);
		errno = -rc;
		return NULL;
	}
	step_put(&step, &t->cache->held, (uintptr_t)block);
	granules_done(&step);
	untouched = guard_filled(block, heap_class_bytes(class));
	pthread_mutex_unlock(&t->p->class[class]);
	if (!untouched)
		process_misuse(t->p, "the block at %p (%u bytes) was written to after it was freed",
			       block, heap_class_bytes(class));
	memset(block, 0, zeros);
	return block;
}

void *block_take(struct heap_thread *t, size_t size, size_t align, bool zero)
{
	size_t whole = t->p->debug ? size + GUARD_BYTES : size, zeros = zero ? size : 0;
	unsigned int class;
	void *block;

	if (size > PTRDIFF_MAX - GUARD_BYTES || whole > t->max || align > t->max) {
		errno = ENOMEM;
		return NULL;
	}
	class = block_class(whole, align);
	if (class == HEAP_CLASSES)
		block = block_take_large(t, whole, align, zeros);
	else if (t->p->debug)
		block = block_take_small_debug(t, class, zeros);
	else
		block = block_take_small(t, class, zeros);
	if (block && t->p->debug) {
		struct heap_block is = slabs_look(t->p, block);

		guard_arm(block, is.bytes, size);
	}
	return block;
}

/* ---- give ----------------------------------------------------------------------------------- */

/* In a debug heap: whether it is given out, its guard is whole, and its size that one. */
static bool block_check_debug(struct heap_thread *t, const void *block, size_t size,
			      struct heap_block *is)
{
	int64_t asked;

	if (is->kind == HEAP_SLAB) {
		bool is_free;

		pthread_mutex_lock(&t->p->class[is->class]);
		is_free = slabs_is_free(t->p->heap, is);
		pthread_mutex_unlock(&t->p->class[is->class]);
		if (is_free) {
			slabs_misuse(t->p, block, is);
			return false;
		}
	}
	asked = guard_asked(block, is->bytes);
	if (asked < 0) {
		guard_misuse(t->p, block, is->bytes);
		return false;
	}
	if (size != BLOCK_ANY_SIZE && size != (size_t)asked) {
		process_misuse(t->p, "the block at %p has %lld bytes, and was freed as one of %zu",
			       block, (long long)asked, size);
		return false;
	}
	return true;
}

bool block_check(struct heap_thread *t, const void *block, size_t size, size_t align,
		 struct heap_block *is)
{
	const struct heap_stack *stack;

	*is = slabs_look(t->p, block);
	if (is->kind == HEAP_INSIDE) {
		slabs_misuse(t->p, block, is);
		return false;
	}
	if (t->p->debug)
		return block_check_debug(t, block, size, is);
	if (size != BLOCK_ANY_SIZE &&
	    block_class(size, align) != (is->kind == HEAP_SLAB ? is->class : HEAP_CLASSES)) {
		slabs_misuse(t->p, block, is);
		return false;
	}
	stack = &t->cache->stack[is->class];
	if (is->kind == HEAP_SLAB && stack->top > stack->low && stack->top[-1] == block) {
		is->free = true;
		slabs_misuse(t->p, block, is);
		return false;
	}
	return true;
}

static void block_give_small(struct heap_thread *t, void *block, unsigned int class, bool held)
{
	struct heap_stack *stack = &t->cache->stack[class];
	struct heap_step step = step_begin(t->p, &t->cache->log);

	if (stack->top == stack->high)
		cache_drain(t->p, t->cache, class, heap_class_cached(class) / 2);
	if (!held) {
		stack_push(stack, block);
		return;
	}
	heap_store((uint64_t *)stack->top, (uintptr_t)block);
	step_put(&step, (uint64_t *)&stack->top, (uintptr_t)(stack->top + 1));
	step_put(&step, &t->cache->held, 0);
	step_done(&step);
}

static void block_give_small_debug(struct heap_thread *t, void *block, const struct heap_block *is,
				   bool held)
{
	struct heap_step step = step_begin(t->p, &t->cache->log);

	pthread_mutex_lock(&t->p->class[is->class]);
	slabs_push(&step, is->class, block);
	if (held)
		step_put(&step, &t->cache->held, 0);
	granules_done(&step);
	/* Unless its slab went with it. */
	if (heap_desc(t->p->heap, heap_granule(t->p->heap, block))->word ==
	    heap_word(HEAP_SLAB, is->class, 0, is->granule))
		guard_fill(block, is->bytes);
	pthread_mutex_unlock(&t->p->class[is->class]);
}

void block_give(struct heap_thread *t, void *block, const struct heap_block *is, bool held)
{
	struct heap_step step = step_begin(t->p, &t->cache->log);

	if (is->kind == HEAP_SLAB && t->p->debug) {
		block_give_small_debug(t, block, is, held);
		return;
	}
	if (is->kind == HEAP_SLAB) {
		block_give_small(t, block, is->class, held);
		return;
	}
	granules_lock(&step);
	granules_give(&step, is->granule, is->bytes >> GRANULE_SHIFT);
	if (held)
		step_put(&step, &t->cache->held, 0);
	granules_done(&step);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

size_t block_usable(const struct heap_process *p, const void *block, const struct heap_block *is)
{
	int64_t asked = p->debug ? guard_asked(block, is->bytes) : (int64_t)is->bytes;

	return asked < 0 ? 0 : (size_t)asked;
}

bool block_resize(struct heap_thread *t, const struct heap_block *is, size_t size)
{
	struct heap_step step = step_begin(t->p, &t->cache->log);
	uint64_t has = is->bytes >> GRANULE_SHIFT, wants = heap_granules_for(size);
	bool done = true;

	if (t->p->debug || size > t->max)
		return false;
	/* The class stays the one that a sized free of the new size finds. */
	if (is->kind == HEAP_SLAB || size <= HEAP_SMALL_MAX)
		return is->kind == HEAP_SLAB && size <= HEAP_SMALL_MAX &&
		       heap_class(size) == is->class;
	if (wants == has)
		return true;
	granules_lock(&step);
	if (wants < has)
		granules_give(&step, is->granule + wants, has - wants);
	else
		done = granules_extend(&step, is->granule, has, wants);
	if (!done) {
		granules_undo(&step);
		return false;
	}
	step_put(&step, &heap_desc(t->p->heap, is->granule)->word,
		 heap_word(HEAP_LARGE, 0, 0, wants));
	granules_done(&step);
	return true;
}
