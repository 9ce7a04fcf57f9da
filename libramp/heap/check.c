/*
 * Looks at all of a heap: every granule belongs to one run, every run is in its list, every count is right.
 */
#include <errno.h>
#include <string.h>

#include "cache.h"
#include "guard.h"

/* Found by the walk over the granules. */
struct heap_census {
	struct heap_process *p;
	struct ramp_heap_err *err;
	uint64_t used, dirty, free_runs, caches;
	uint64_t partial[HEAP_CLASSES]; /* slabs with free blocks */
};

#define CHECK_DAMAGE(c, ...) heap_error((c)->err, EUCLEAN, __VA_ARGS__)

/* ---- granules ------------------------------------------------------------------------------- */

/* Checks that granules begin no run. */
static int check_inside(const struct heap_census *c, uint64_t from, uint64_t to)
{
	for (uint64_t g = from; g < to; g++) {
		if (heap_desc(c->p->heap, g)->word != HEAP_INSIDE)
			return CHECK_DAMAGE(c, "granule %llu is inside of a run, and says 0x%llx",
					    (unsigned long long)g,
					    (unsigned long long)heap_desc(c->p->heap, g)->word);
	}
	return 0;
}

static int check_free(struct heap_census *c, uint64_t granule, uint64_t n)
{
	const struct ramp_heap *heap = c->p->heap;
	uint64_t before = heap_desc(heap, granule - 1)->word;

	if (DESC_KIND(before) == HEAP_FREE || DESC_KIND(before) == HEAP_FREE_END ||
	    granule + n >= heap->top)
		return CHECK_DAMAGE(c,
				    "the free run at granule %llu is not joined with its neighbour",
				    (unsigned long long)granule);
	if (n > 1 && heap_desc(heap, granule + n - 1)->word != heap_word(HEAP_FREE_END, 0, 0, n))
		return CHECK_DAMAGE(c, "the free run at granule %llu has no end",
				    (unsigned long long)granule);
	c->free_runs++;
	if (DESC_DIRTY(heap_desc(heap, granule)->word))
		c->dirty += n;
	return check_inside(c, granule + 1, granule + n - 1);
}

static int check_debug_block(const struct heap_census *c, char *block, uint64_t bytes, bool is_free)
{
	if (!c->p->debug)
		return 0;
	if (is_free && !guard_filled(block, bytes))
		return CHECK_DAMAGE(
			c, "the block at %p (%llu bytes) was written to after it was freed",
			(void *)block, (unsigned long long)bytes);
	if (!is_free && guard_asked(block, bytes) < 0)
		return CHECK_DAMAGE(c,
				    "the guard behind the block at %p (%llu bytes) was overwritten",
				    (void *)block, (unsigned long long)bytes);
	return 0;
}

static int check_slab_blocks(struct heap_census *c, uint64_t granule, unsigned int class)
{
	const struct heap_desc *d = heap_desc(c->p->heap, granule);
	uint32_t blocks = heap_class_blocks(class), bytes = heap_class_bytes(class), left = 0;

	for (uint32_t i = 0; i < HEAP_BLOCKS_MAX; i++) {
		bool is_free = d->map[i / 64] >> i % 64 & 1;

		if (i >= blocks && is_free)
			return CHECK_DAMAGE(c, "the slab at granule %llu has a block too many",
					    (unsigned long long)granule);
		if (i >= blocks)
			continue;
		left += is_free;
		if (check_debug_block(c,
				      (char *)heap_address(c->p->heap, granule) + (size_t)i * bytes,
				      bytes, is_free))
			return -EUCLEAN;
	}
	if (d->used != blocks - left)
		return CHECK_DAMAGE(
			c, "the slab at granule %llu has %u blocks in use, and says %llu",
			(unsigned long long)granule, blocks - left, (unsigned long long)d->used);
	c->partial[class] += left > 0;
	return 0;
}

static int check_slab(struct heap_census *c, uint64_t granule, uint64_t *n)
{
	uint64_t word = heap_desc(c->p->heap, granule)->word;
	unsigned int class = DESC_CLASS(word);

	if (class >= HEAP_CLASSES || DESC_NUMBER(word) != granule)
		return CHECK_DAMAGE(c, "no slab begins at granule %llu, which says so",
				    (unsigned long long)granule);
	*n = heap_class_granules(class);
	for (uint64_t i = 1; i < *n; i++) {
		if (heap_desc(c->p->heap, granule + i)->word != word)
			return CHECK_DAMAGE(
				c, "granule %llu says that it is in no slab, or in another",
				(unsigned long long)(granule + i));
	}
	c->used += *n;
	return check_slab_blocks(c, granule, class);
}

/* Checks the run that begins there; *n is its length. */
static int check_run(struct heap_census *c, uint64_t granule, uint64_t *n)
{
	const struct ramp_heap *heap = c->p->heap;
	uint64_t word = heap_desc(heap, granule)->word;

	*n = DESC_NUMBER(word);
	if (DESC_KIND(word) == HEAP_SLAB)
		return check_slab(c, granule, n);
	if (!*n || *n > heap->top - granule)
		return CHECK_DAMAGE(c, "the run at granule %llu has no length",
				    (unsigned long long)granule);
	switch (DESC_KIND(word)) {
	case HEAP_FREE:
		return check_free(c, granule, *n);
	case HEAP_LARGE:
		c->used += *n;
		if (check_debug_block(c, heap_address(heap, granule), *n << GRANULE_SHIFT, false))
			return -EUCLEAN;
		return check_inside(c, granule + 1, granule + *n);
	case HEAP_CACHE:
		c->used += *n;
		c->caches++;
		return *n == 1 ? 0
			       : CHECK_DAMAGE(c, "the cache at granule %llu is too long",
					      (unsigned long long)granule);
	default:
		return CHECK_DAMAGE(c, "no run begins at granule %llu",
				    (unsigned long long)granule);
	}
}

static int check_granules(struct heap_census *c)
{
	const struct ramp_heap *heap = c->p->heap;
	uint64_t g, n;

	for (g = heap->first; g < heap->top; g += n) {
		int rc = check_run(c, g, &n);

		if (rc)
			return rc;
	}
	if (g != heap->top)
		return CHECK_DAMAGE(c, "the last run is longer than the heap");
	if (c->used != heap->used || c->dirty != heap->dirty || heap->fresh < heap->top ||
	    heap->fresh > heap->size >> GRANULE_SHIFT)
		return CHECK_DAMAGE(
			c,
			"%llu granules are in use and %llu may be punched out, not %llu and %llu",
			(unsigned long long)c->used, (unsigned long long)c->dirty,
			(unsigned long long)heap->used, (unsigned long long)heap->dirty);
	return check_inside(c, heap->top, heap->size >> GRANULE_SHIFT);
}

/* ---- lists ---------------------------------------------------------------------------------- */

/* Walks the list of a bin (HEAP_FREE) or of a class (HEAP_SLAB). Returns how many are in it, or -EUCLEAN. */
static int64_t check_list(const struct heap_census *c, uint64_t head, enum heap_kind kind,
			  unsigned int which)
{
	const struct ramp_heap *heap = c->p->heap;
	uint64_t before = 0;
	int64_t n = 0;

	for (uint64_t g = head; g; g = heap_desc(heap, g)->next) {
		const struct heap_desc *d = heap_desc(heap, g < heap->top ? g : 0);
		bool fits = DESC_KIND(d->word) == kind && d->prev == before;

		if (kind == HEAP_FREE)
			fits &= granules_bin(DESC_NUMBER(d->word)) == which;
		else
			fits &= DESC_CLASS(d->word) == which && DESC_NUMBER(d->word) == g;
		if (!fits || (uint64_t)++n > heap->top)
			return CHECK_DAMAGE(c, "granule %llu is in a list where it does not belong",
					    (unsigned long long)g);
		before = g;
	}
	return n;
}

static int check_lists(struct heap_census *c)
{
	const struct ramp_heap *heap = c->p->heap;
	uint64_t runs = 0;

	for (unsigned int bin = 0; bin < HEAP_BINS; bin++) {
		int64_t n = check_list(c, heap->bin[bin], HEAP_FREE, bin);

		if (n < 0)
			return -EUCLEAN;
		if ((heap->bins_used[bin / 64] >> bin % 64 & 1) != (n > 0))
			return CHECK_DAMAGE(c, "bin %u has %lld runs, and its bit says otherwise",
					    bin, (long long)n);
		runs += (uint64_t)n;
	}
	if (runs != c->free_runs)
		return CHECK_DAMAGE(c, "%llu of %llu free runs are in bins",
				    (unsigned long long)runs, (unsigned long long)c->free_runs);
	for (unsigned int class = 0; class < HEAP_CLASSES; class ++) {
		int64_t n = check_list(c, heap->partial[class], HEAP_SLAB, class);

		if (n < 0)
			return -EUCLEAN;
		if ((uint64_t)n != c->partial[class])
			return CHECK_DAMAGE(
				c,
				"%lld of %llu slabs with free blocks of %u bytes are in their list",
				(long long)n, (unsigned long long)c->partial[class],
				heap_class_bytes(class));
	}
	return 0;
}

static int check_caches(struct heap_census *c)
{
	const struct heap_cache *cache = (const struct heap_cache *)(uintptr_t)c->p->heap->caches;
	uint64_t n = 0;

	for (; cache; cache = (const struct heap_cache *)(uintptr_t)cache->next) {
		if (n++ >= c->caches || !cache_sound(c->p->heap, cache) || cache->log.n ||
		    cache->held)
			return CHECK_DAMAGE(c, "the cache at %p is damaged", (const void *)cache);
	}
	if (n != c->caches)
		return CHECK_DAMAGE(c, "%llu of %llu threads' caches are in their list",
				    (unsigned long long)n, (unsigned long long)c->caches);
	return 0;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Takes the place of the heap's `misuse` while caches are given back. */
static void check_hear(void *err, const char *text)
{
	struct ramp_heap_err *to = err;

	if (!to->code)
		heap_error(to, EUCLEAN, "%s", text);
}

/* Gives all caches back. Returns 0, or -EUCLEAN: there was something in them that is no block in use. */
static int check_drain(struct heap_process *p, struct ramp_heap_err *err)
{
	struct ramp_heap_options options = p->options;
	struct ramp_heap_err heard = {0};
	const struct heap_cache *cache = (const struct heap_cache *)(uintptr_t)p->heap->caches;
	uint64_t most = p->heap->size >> GRANULE_SHIFT;

	for (; cache; cache = (const struct heap_cache *)(uintptr_t)cache->next) {
		if (!most-- || !cache_sound(p->heap, cache))
			return heap_error(err, EUCLEAN, "the cache at %p is damaged",
					  (const void *)cache);
	}
	p->options.misuse = check_hear;
	p->options.arg = &heard;
	process_enter(p);
	cache_drain_all(p);
	process_leave(p);
	p->options.misuse = options.misuse;
	p->options.arg = options.arg;
	return heard.code ? heap_error(err, EUCLEAN, "%s", heard.text) : 0;
}

int ramp_heap_check(struct ramp_heap *heap, struct ramp_heap_err *err)
{
	struct heap_census c = {.p = process_find(heap), .err = err};
	int rc;

	if (!c.p)
		return heap_error(err, ENODEV, "this process has no heap at %p open", (void *)heap);
	if (heap_desc(heap, 0)->word != heap_word(HEAP_RECORDS, 0, 0, heap->first))
		return CHECK_DAMAGE(&c, "the heap's records have no length");
	rc = check_inside(&c, 1, heap->first);
	if (!rc)
		rc = check_drain(c.p, err);
	if (!rc)
		rc = check_granules(&c);
	if (!rc)
		rc = check_lists(&c);
	if (!rc)
		rc = check_caches(&c);
	if (!rc && heap->root - (uintptr_t)heap >= heap->max && heap->root)
		rc = CHECK_DAMAGE(&c, "the root is not in the heap");
	return rc;
}

static int check_each_of_slab(const struct heap_process *p, uint64_t granule,
			      int (*block)(void *arg, void *address, size_t usable), void *arg)
{
	const struct heap_desc *d = heap_desc(p->heap, granule);
	unsigned int class = DESC_CLASS(d->word);
	char *at = heap_address(p->heap, granule);

	for (uint32_t i = 0; i < heap_class_blocks(class); i++, at += heap_class_bytes(class)) {
		uint32_t bytes = heap_class_bytes(class);
		int rc;

		if (d->map[i / 64] >> i % 64 & 1)
			continue;
		rc = block(arg, at, p->debug ? (size_t)guard_asked(at, bytes) : bytes);
		if (rc)
			return rc;
	}
	return 0;
}

int ramp_heap_each(struct ramp_heap *heap, int (*block)(void *arg, void *address, size_t usable),
		   void *arg)
{
	struct heap_process *p = process_find(heap);
	int rc = 0;

	if (!p)
		return -ENODEV;
	if (check_drain(p, NULL))
		return -EUCLEAN;
	for (uint64_t g = heap->first; g < heap->top && !rc;) {
		uint64_t word = heap_desc(heap, g)->word, n = DESC_NUMBER(word);

		if (DESC_KIND(word) == HEAP_SLAB) {
			n = heap_class_granules(DESC_CLASS(word));
			rc = check_each_of_slab(p, g, block, arg);
		} else if (DESC_KIND(word) == HEAP_LARGE) {
			struct heap_block is = slabs_look(p, heap_address(heap, g));

			rc = block(arg, heap_address(heap, g),
				   p->debug ? (size_t)guard_asked(heap_address(heap, g), is.bytes)
					    : is.bytes);
		}
		if (!n)
			return -EUCLEAN;
		g += n;
	}
	return rc;
}

int ramp_heap_stats(struct ramp_heap *heap, struct ramp_heap_stats *stats)
{
	struct heap_process *p = process_find(heap);
	const struct heap_cache *cache;

	if (!p)
		return -ENODEV;
	pthread_mutex_lock(&p->caches);
	pthread_mutex_lock(&p->granules);
	*stats = (struct ramp_heap_stats){
		.size = heap->size,
		.max = heap->max,
		.used = (heap->first + heap->used) << GRANULE_SHIFT,
		.free = heap->size - ((heap->first + heap->used) << GRANULE_SHIFT),
		.unpunched = (heap->dirty + heap->fresh - heap->top) << GRANULE_SHIFT,
		.undone = p->undone,
	};
	cache = (const struct heap_cache *)(uintptr_t)heap->caches;
	for (; cache; cache = (const struct heap_cache *)(uintptr_t)cache->next)
		stats->caches++;
	pthread_mutex_unlock(&p->granules);
	pthread_mutex_unlock(&p->caches);
	return 0;
}
