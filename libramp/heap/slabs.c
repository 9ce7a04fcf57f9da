#include "slabs.h"

#include <errno.h>
#include <string.h>

/* ---- the list of a class -------------------------------------------------------------------- */

static void slabs_link(struct heap_step *step, unsigned int class, uint64_t granule)
{
	struct ramp_heap *heap = step->heap;
	uint64_t head = heap->partial[class];

	step_put(step, &heap_desc(heap, granule)->next, head);
	step_put(step, &heap_desc(heap, granule)->prev, 0);
	if (head)
		step_put(step, &heap_desc(heap, head)->prev, granule);
	step_put(step, &heap->partial[class], granule);
}

static void slabs_unlink(struct heap_step *step, unsigned int class, uint64_t granule)
{
	struct ramp_heap *heap = step->heap;
	uint64_t next = heap_desc(heap, granule)->next, prev = heap_desc(heap, granule)->prev;

	if (next)
		step_put(step, &heap_desc(heap, next)->prev, prev);
	step_put(step, prev ? &heap_desc(heap, prev)->next : &heap->partial[class], next);
}

/* ---- slabs ---------------------------------------------------------------------------------- */

static int slabs_make(struct heap_step *step, unsigned int class)
{
	uint32_t n = heap_class_granules(class), blocks = heap_class_blocks(class);
	struct heap_desc *d;
	uint64_t granule;
	bool zero;
	int rc;

	granules_lock(step);
	rc = granules_take(step, n, 1, &granule, &zero);
	if (rc)
		return rc;
	d = heap_desc(step->heap, granule);
	for (uint32_t i = 0; i < HEAP_MAP_WORDS; i++) {
		uint32_t left = blocks > i * 64 ? blocks - i * 64 : 0;

		/* Means nothing before the kind says slab. */
		heap_store(&d->map[i], left >= 64 ? UINT64_MAX : (UINT64_C(1) << left) - 1);
	}
	step_put(step, &d->used, 0);
	for (uint32_t i = 0; i < n; i++)
		step_put(step, &heap_desc(step->heap, granule + i)->word,
			 heap_word(HEAP_SLAB, class, 0, granule));
	slabs_link(step, class, granule);
	if (step->p->debug)
		memset(heap_address(step->heap, granule), HEAP_FREED_BYTE, n << GRANULE_SHIFT);
	return 0;
}

static void slabs_release(struct heap_step *step, unsigned int class, uint64_t granule)
{
	uint32_t n = heap_class_granules(class);

	granules_lock(step);
	slabs_unlink(step, class, granule);
	for (uint32_t i = 1; i < n; i++)
		step_put(step, &heap_desc(step->heap, granule + i)->word, HEAP_INSIDE);
	granules_give(step, granule, n);
}

int slabs_pull(struct heap_step *step, unsigned int class, void **blocks, uint32_t want,
	       bool may_make)
{
	uint64_t granule = step->heap->partial[class];
	struct heap_desc *d;
	char *base;
	uint32_t n = 0;

	if (!granule) {
		int rc = may_make ? slabs_make(step, class) : 0;

		if (rc || !may_make)
			return rc;
		granule = step->heap->partial[class];
	}
	d = heap_desc(step->heap, granule);
	base = heap_address(step->heap, granule);
	for (uint32_t i = 0; i < HEAP_MAP_WORDS && n < want; i++) {
		uint64_t bits = d->map[i];

		if (!bits)
			continue;
		for (; bits && n < want; bits &= bits - 1)
			blocks[n++] = base + (size_t)(i * 64 + (uint32_t)__builtin_ctzll(bits)) *
						     heap_class_bytes(class);
		step_put(step, &d->map[i], bits);
	}
	step_put(step, &d->used, d->used + n);
	if (d->used == heap_class_blocks(class))
		slabs_unlink(step, class, granule);
	return (int)n;
}

int slabs_push(struct heap_step *step, unsigned int class, void *block)
{
	struct heap_block is = slabs_look(step->p, block);
	struct heap_desc *d = heap_desc(step->heap, is.granule);

	if (is.kind != HEAP_SLAB || is.class != class || slabs_is_free(step->heap, &is)) {
		slabs_misuse(step->p, block, &is);
		return -EINVAL;
	}
	step_put(step, &d->map[is.index / 64],
		 d->map[is.index / 64] | UINT64_C(1) << is.index % 64);
	step_put(step, &d->used, d->used - 1);
	if (d->used == heap_class_blocks(class) - 1)
		slabs_link(step, class, is.granule);
	/* The last one of its class stays, for the next block. */
	if (!d->used && (d->next || d->prev))
		slabs_release(step, class, is.granule);
	return 0;
}

void slabs_trim(struct heap_process *p, struct heap_log *log)
{
	struct ramp_heap *heap = p->heap;

	for (unsigned int class = 0; class < HEAP_CLASSES; class ++) {
		uint64_t granule;

		pthread_mutex_lock(&p->class[class]);
		granule = heap->partial[class];
		while (granule) {
			struct heap_step step = step_begin(p, log);
			uint64_t next = heap_desc(heap, granule)->next;

			if (!heap_desc(heap, granule)->used) {
				slabs_release(&step, class, granule);
				granules_done(&step);
			}
			granule = next;
		}
		pthread_mutex_unlock(&p->class[class]);
	}
}

/* ---- addresses ------------------------------------------------------------------------------ */

struct heap_block slabs_look(const struct heap_process *p, const void *address)
{
	struct heap_block is = {.kind = HEAP_INSIDE};
	uint64_t offset = (uintptr_t)address - (uintptr_t)p->heap, word, in;

	if (offset >= p->max)
		return is;
	word = heap_desc(p->heap, offset >> GRANULE_SHIFT)->word;
	if (DESC_KIND(word) == HEAP_LARGE && offset % GRANULE == 0) {
		is.kind = HEAP_LARGE;
		is.granule = offset >> GRANULE_SHIFT;
		is.bytes = DESC_NUMBER(word) << GRANULE_SHIFT;
	}
	if (DESC_KIND(word) != HEAP_SLAB || DESC_CLASS(word) >= HEAP_CLASSES)
		return is;
	is.granule = DESC_NUMBER(word);
	is.class = DESC_CLASS(word);
	is.bytes = heap_class_bytes(is.class);
	in = offset - (is.granule << GRANULE_SHIFT);
	is.index = (uint32_t)(in / is.bytes);
	if (in % is.bytes || is.index >= heap_class_blocks(is.class))
		return is;
	is.kind = HEAP_SLAB;
	return is;
}

bool slabs_is_free(const struct ramp_heap *heap, struct heap_block *is)
{
	is->free = heap_desc(heap, is->granule)->map[is->index / 64] >> is->index % 64 & 1;
	return is->free;
}

void slabs_misuse(const struct heap_process *p, const void *address, const struct heap_block *is)
{
	if ((uintptr_t)address - (uintptr_t)p->heap >= p->max)
		process_misuse(p, "%p is not in the heap at %p", address, (void *)p->heap);
	else if (is->kind == HEAP_SLAB && is->free)
		process_misuse(p, "double free of %p, a block of %llu bytes", address,
			       (unsigned long long)is->bytes);
	else if (is->kind == HEAP_SLAB || is->kind == HEAP_LARGE)
		process_misuse(p, "%p is a block of %llu bytes, and not of the size that was given",
			       address, (unsigned long long)is->bytes);
	else
		process_misuse(p,
			       "no block begins at %p: a wrong address, or a large block that is "
			       "free already",
			       address);
}
