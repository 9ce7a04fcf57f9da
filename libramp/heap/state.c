/*
 * A heap's life: made, opened, closed. Opening undoes the calls that were cut off.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "blocks.h"
#include "guard.h"

/* Says that this process has the heap open: while the pid is 0, none has. */
static void state_own(struct ramp_heap *heap)
{
	struct heap_owner self;

	process_self(&self);
	heap_store(&heap->owner.pid, 0);
	heap->owner.boot[0] = self.boot[0];
	heap->owner.boot[1] = self.boot[1];
	heap->owner.pid_space = self.pid_space;
	heap->owner.started = self.started;
	heap_store(&heap->owner.pid, self.pid);
}

/* ---- format --------------------------------------------------------------------------------- */

static int state_look_at_options(const void *base, uint64_t size, uint64_t max,
				 const struct ramp_heap_options *options, struct ramp_heap_err *err)
{
	uint64_t records = HEAP_TABLE + (max >> GRANULE_SHIFT) * sizeof(struct heap_desc);
	uint64_t least = (heap_granules_for(records) + 1) << GRANULE_SHIFT;

	if ((uintptr_t)base % RAMP_HEAP_ALIGN)
		return heap_error(err, EINVAL, "%p is not aligned to %u bytes", base,
				  RAMP_HEAP_ALIGN);
	if (options && options->flags & ~RAMP_HEAP_DEBUG)
		return heap_error(err, EINVAL, "unknown flags 0x%x",
				  options->flags & ~RAMP_HEAP_DEBUG);
	if (max >> GRANULE_SHIFT > GRANULES_MAX)
		return heap_error(err, EINVAL, "a heap becomes %llu TiB at most",
				  (unsigned long long)(GRANULES_MAX << GRANULE_SHIFT >> 40));
	if (size < least)
		return heap_error(
			err, EINVAL,
			"%llu bytes are too small: a heap that may become %llu takes %llu",
			(unsigned long long)size, (unsigned long long)max,
			(unsigned long long)least);
	return 0;
}

static void state_write_header(struct ramp_heap *heap, uint64_t size, uint64_t max,
			       unsigned int flags)
{
	uint64_t granules = size >> GRANULE_SHIFT;
	uint64_t records = HEAP_TABLE + (max >> GRANULE_SHIFT) * sizeof(struct heap_desc);
	bool zeros = madvise(heap, granules << GRANULE_SHIFT, MADV_REMOVE) == 0;

	if (!zeros)
		memset(heap, 0, heap_granules_for(records) << GRANULE_SHIFT);
	heap->version = HEAP_VERSION;
	heap->flags = flags;
	heap->base = (uintptr_t)heap;
	heap->max = max;
	heap->size = granules << GRANULE_SHIFT;
	heap->desc_bytes = sizeof(struct heap_desc);
	heap->cache_bytes = sizeof(struct heap_cache);
	heap->first = heap->top = heap_granules_for(records);
	heap->fresh = zeros ? heap->first : granules;
	heap_desc(heap, 0)->word = heap_word(HEAP_RECORDS, 0, 0, heap->first);
	state_own(heap);
	/* Cut off before this, it is no heap. */
	atomic_signal_fence(memory_order_seq_cst);
	memcpy(heap->magic, HEAP_MAGIC, sizeof(heap->magic));
}

struct ramp_heap *ramp_heap_format(void *base, uint64_t size_bytes,
				   const struct ramp_heap_options *options,
				   struct ramp_heap_err *err)
{
	struct ramp_heap *heap = base;
	uint64_t max = options && options->max_bytes > size_bytes ? options->max_bytes : size_bytes;
	struct heap_process *p = process_at(base, max);

	max &= ~(GRANULE - 1);
	if (p) {
		heap_error(err, EBUSY, "this process has a heap at %p open", (void *)p->heap);
		return NULL;
	}
	if (state_look_at_options(base, size_bytes, max, options, err))
		return NULL;
	if (memcmp(heap->magic, HEAP_MAGIC, sizeof(heap->magic)) == 0 &&
	    process_is_another(&heap->owner)) {
		heap_error(err, EBUSY, "process %llu has the heap open",
			   (unsigned long long)heap->owner.pid);
		return NULL;
	}
	p = process_new(heap, max, options);
	if (!p) {
		heap_error(err, ENOMEM, "no memory");
		return NULL;
	}
	memset(heap->magic, 0, sizeof(heap->magic));
	state_write_header(heap, size_bytes, max, options ? options->flags : 0);
	p->debug = heap->flags & RAMP_HEAP_DEBUG;
	process_add(p);
	return heap;
}

/* ---- open ----------------------------------------------------------------------------------- */

static int state_look_at_header(const struct ramp_heap *heap, uint64_t size,
				struct ramp_heap_err *err)
{
	if ((uintptr_t)heap % RAMP_HEAP_ALIGN || size < GRANULE ||
	    memcmp(heap->magic, HEAP_MAGIC, sizeof(heap->magic)) != 0)
		return heap_error(err, EINVAL, "there is no heap at %p", (const void *)heap);
	if (heap->version != HEAP_VERSION)
		return heap_error(err, EINVAL, "the heap has version %u, this library knows %u",
				  heap->version, HEAP_VERSION);
	if (heap->base != (uintptr_t)heap)
		return heap_error(err, EFAULT,
				  "the heap was made for address 0x%llx, and is mapped at %p",
				  (unsigned long long)heap->base, (const void *)heap);
	if (heap->size > size)
		return heap_error(err, ENODATA, "the heap has %llu bytes, and %llu are mapped",
				  (unsigned long long)heap->size, (unsigned long long)size);
	if (process_is_another(&heap->owner))
		return heap_error(err, EBUSY, "process %llu has the heap open",
				  (unsigned long long)heap->owner.pid);
	if (heap->desc_bytes != sizeof(struct heap_desc) ||
	    heap->cache_bytes != sizeof(struct heap_cache) || heap->size > heap->max ||
	    heap->max >> GRANULE_SHIFT > GRANULES_MAX || heap->top > heap->size >> GRANULE_SHIFT ||
	    heap->first > heap->top || heap->flags & ~RAMP_HEAP_DEBUG)
		return heap_error(err, EUCLEAN, "the heap's header is damaged");
	return 0;
}

/* Undoes the steps that were cut off. Returns how many, or a negative errno. */
static int state_undo_steps(const struct ramp_heap *heap, struct ramp_heap_err *err)
{
	uint64_t longest = heap->size >> GRANULE_SHIFT;
	int undone = log_undo(heap, (struct heap_log *)(uintptr_t)&heap->log), rc;
	struct heap_cache *cache;

	if (undone < 0)
		return heap_error(err, EUCLEAN, "the heap's log is damaged");
	cache = (struct heap_cache *)(uintptr_t)heap->caches;
	for (; cache; cache = (struct heap_cache *)(uintptr_t)cache->next) {
		uint64_t offset = (uintptr_t)cache - (uintptr_t)heap;

		if (offset % GRANULE || offset >= heap->size || !longest--)
			return heap_error(err, EUCLEAN, "the list of threads' caches is damaged");
		rc = log_undo(heap, &cache->log);
		if (rc < 0)
			return heap_error(err, EUCLEAN, "the log of the cache at %p is damaged",
					  (void *)cache);
		undone += rc;
		if (!cache_sound(heap, cache))
			return heap_error(err, EUCLEAN, "the cache at %p is damaged",
					  (void *)cache);
	}
	return undone;
}

/* Gives back what calls had taken that never returned. Returns how many, or a negative errno. */
static int state_undo_calls(struct heap_process *p, struct ramp_heap_err *err)
{
	struct heap_cache *cache = (struct heap_cache *)(uintptr_t)p->heap->caches;
	int undone = 0;

	for (; cache; cache = (struct heap_cache *)(uintptr_t)cache->next) {
		struct heap_thread t = {.cache = cache, .p = p, .heap = p->heap, .max = p->max};
		void *block = (void *)(uintptr_t)cache->held;
		struct heap_block is;

		if (!block)
			continue;
		is = slabs_look(p, block);
		if (is.kind == HEAP_INSIDE || (is.kind == HEAP_SLAB && slabs_is_free(p->heap, &is)))
			return heap_error(err, EUCLEAN, "a cut off call held %p, which is no block",
					  block);
		block_give(&t, block, &is, true);
		undone++;
	}
	return undone;
}

/* In a debug heap: fills all blocks that are free, since a call that was cut off had no time to. */
static void state_fill_free(const struct ramp_heap *heap)
{
	for (unsigned int class = 0; class < HEAP_CLASSES; class ++) {
		for (uint64_t g = heap->partial[class]; g; g = heap_desc(heap, g)->next) {
			for (uint32_t i = 0; i < heap_class_blocks(class); i++) {
				char *block = (char *)heap_address(heap, g) +
					      (size_t)i * heap_class_bytes(class);

				if (heap_desc(heap, g)->map[i / 64] >> i % 64 & 1)
					guard_fill(block, heap_class_bytes(class));
			}
		}
	}
}

static int state_recover(struct heap_process *p, struct ramp_heap_err *err)
{
	struct ramp_heap *heap = p->heap;
	int steps = state_undo_steps(heap, err), calls;

	if (steps < 0)
		return steps;
	calls = state_undo_calls(p, err);
	if (calls < 0)
		return calls;
	if (p->debug && heap->owner.pid)
		state_fill_free(heap);
	if (cache_adopt(p))
		return heap_error(err, ENOMEM, "no memory");
	p->undone = (uint64_t)steps + (uint64_t)calls;
	state_own(heap);
	return 0;
}

struct ramp_heap *ramp_heap_open(void *base, uint64_t size_bytes,
				 const struct ramp_heap_options *options, struct ramp_heap_err *err)
{
	struct ramp_heap *heap = base;
	struct heap_process *p = process_at(base, size_bytes);

	if (p) {
		heap_error(err, EEXIST, "this process has the heap at %p open", (void *)p->heap);
		return NULL;
	}
	if (state_look_at_header(heap, size_bytes, err))
		return NULL;
	p = process_new(heap, heap->max, options);
	if (!p) {
		heap_error(err, ENOMEM, "no memory");
		return NULL;
	}
	p->debug = heap->flags & RAMP_HEAP_DEBUG;
	if (state_recover(p, err)) {
		process_delete(p);
		return NULL;
	}
	process_add(p);
	return heap;
}

/* ---- close ---------------------------------------------------------------------------------- */

int ramp_heap_close(struct ramp_heap *heap)
{
	struct heap_process *p = process_remove(heap);

	if (!p)
		return -ENODEV;
	cache_drain_all(p);
	/* Until the pid is gone, the others mean nothing. */
	heap_store(&heap->owner.pid, 0);
	process_delete(p);
	return 0;
}

int ramp_heap_forget(struct ramp_heap *heap)
{
	struct heap_process *p = process_remove(heap);

	if (!p)
		return -ENODEV;
	process_delete(p);
	return 0;
}

/* ---- root, addresses, trim ------------------------------------------------------------------ */

bool ramp_heap_contains(const struct ramp_heap *heap, const void *address)
{
	const struct heap_process *p;

	if (heap_current(&heap_thread, heap))
		return (uintptr_t)address - (uintptr_t)heap < heap_thread.max;
	p = process_find(heap);
	return p && (uintptr_t)address - (uintptr_t)heap < p->max;
}

struct ramp_heap *ramp_heap_of(const void *address)
{
	struct heap_thread *t = &heap_thread;
	const struct heap_process *p;

	if (t->heap && heap_current(t, t->heap) && (uintptr_t)address - (uintptr_t)t->heap < t->max)
		return (struct ramp_heap *)(uintptr_t)t->heap;
	p = process_at(address, 1);
	return p ? p->heap : NULL;
}

void *ramp_heap_root(struct ramp_heap *heap)
{
	if (!process_find(heap)) {
		errno = ENODEV;
		return NULL;
	}
	return (void *)(uintptr_t)__atomic_load_n(&heap->root, __ATOMIC_ACQUIRE);
}

int ramp_heap_set_root(struct ramp_heap *heap, void *root)
{
	if (!process_find(heap))
		return -ENODEV;
	if (root && !ramp_heap_contains(heap, root))
		return -EINVAL;
	__atomic_store_n(&heap->root, (uintptr_t)root, __ATOMIC_RELEASE);
	return 0;
}

uint64_t ramp_heap_trim(struct ramp_heap *heap)
{
	struct heap_thread *t = cache_bind(heap);
	uint64_t punched;

	if (!t)
		return 0;
	process_enter(t->p);
	for (unsigned int class = 0; class < HEAP_CLASSES; class ++)
		cache_drain(t->p, t->cache, class, 0);
	cache_drain_idle(t->p);
	slabs_trim(t->p, &t->cache->log);
	punched = granules_trim(t->p, &t->cache->log);
	process_leave(t->p);
	return punched;
}
