#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct heap_binding {
	struct heap_process *p;
	uint64_t number; /* of *p, which may be closed */
	struct heap_cache *cache;
	struct heap_binding *next;
};

__thread struct heap_thread heap_thread;

static pthread_once_t cache_once = PTHREAD_ONCE_INIT;
static pthread_key_t cache_key;

/* ---- stacks --------------------------------------------------------------------------------- */

int cache_fill(struct heap_process *p, struct heap_cache *cache, unsigned int class)
{
	struct heap_stack *stack = &cache->stack[class];
	uint32_t want = (heap_class_cached(class) + 1) / 2;
	int n = 0;

	pthread_mutex_lock(&p->class[class]);
	do { /* one slab a step */
		struct heap_step step = step_begin(p, &cache->log);

		n = slabs_pull(&step, class, stack->top, want, stack->top == stack->low);
		if (n < 0) {
			granules_undo(&step);
			break;
		}
		/* The first one is the lowest, and is to be taken first. */
		for (int i = 0; i < n / 2; i++) {
			void *block = stack->top[i];

			stack->top[i] = stack->top[n - 1 - i];
			stack->top[n - 1 - i] = block;
		}
		step_put(&step, (uint64_t *)&stack->top, (uintptr_t)(stack->top + n));
		granules_done(&step);
		want -= (uint32_t)n;
	} while (n && want);
	pthread_mutex_unlock(&p->class[class]);
	return stack->top > stack->low ? 0 : n;
}

void cache_drain(struct heap_process *p, struct heap_cache *cache, unsigned int class,
		 uint32_t keep)
{
	struct heap_stack *stack = &cache->stack[class];

	if (stack->top <= stack->low + keep)
		return;
	pthread_mutex_lock(&p->class[class]);
	while (stack->top > stack->low + keep) {
		struct heap_step step = step_begin(p, &cache->log);
		void *block = stack->top[-1];

		step_put(&step, (uint64_t *)&stack->top, (uintptr_t)(stack->top - 1));
		slabs_push(&step, class, block); /* one that is none is dropped */
		granules_done(&step);
	}
	pthread_mutex_unlock(&p->class[class]);
}

static void cache_empty(struct heap_process *p, struct heap_cache *cache)
{
	for (unsigned int class = 0; class < HEAP_CLASSES; class ++)
		cache_drain(p, cache, class, 0);
}

void cache_drain_idle(struct heap_process *p)
{
	pthread_mutex_lock(&p->caches);
	for (uint32_t i = 0; i < p->idle_count; i++)
		cache_empty(p, p->idle[i]);
	pthread_mutex_unlock(&p->caches);
}

void cache_drain_all(struct heap_process *p)
{
	struct heap_cache *cache = (struct heap_cache *)(uintptr_t)p->heap->caches;

	for (; cache; cache = (struct heap_cache *)(uintptr_t)cache->next)
		cache_empty(p, cache);
}

/* ---- caches --------------------------------------------------------------------------------- */

static void **cache_slots(struct heap_cache *cache, unsigned int class)
{
	void **slot = cache->slots;

	for (unsigned int i = 0; i < class; i++)
		slot += heap_class_cached(i);
	return slot;
}

/* Makes a cache in the segment. Returns NULL and errno where there is no room. */
static struct heap_cache *cache_make(struct heap_process *p)
{
	struct heap_step step = step_begin(p, &p->heap->log);
	struct heap_cache *cache;
	uint64_t granule;
	bool zero;
	int rc;

	granules_lock(&step);
	rc = granules_take(&step, 1, 1, &granule, &zero);
	if (rc) {
		granules_undo(&step);
		errno = -rc;
		return NULL;
	}
	cache = heap_address(p->heap, granule);
	memset(cache, 0, GRANULE);
	cache->next = p->heap->caches;
	for (unsigned int class = 0; class < HEAP_CLASSES; class ++) {
		void **low = cache_slots(cache, class);

		cache->stack[class] = (struct heap_stack){low, low, low + heap_class_cached(class)};
	}
	step_put(&step, &heap_desc(p->heap, granule)->word, heap_word(HEAP_CACHE, 0, 0, 1));
	step_put(&step, &p->heap->caches, (uintptr_t)cache);
	granules_done(&step);
	return cache;
}

bool cache_sound(const struct ramp_heap *heap, const struct heap_cache *cache)
{
	uint64_t offset = (uintptr_t)cache - (uintptr_t)heap;

	if (offset % GRANULE || offset >= heap->size ||
	    DESC_KIND(heap_desc(heap, offset >> GRANULE_SHIFT)->word) != HEAP_CACHE)
		return false;
	for (unsigned int class = 0; class < HEAP_CLASSES; class ++) {
		const struct heap_stack *stack = &cache->stack[class];
		void **low = cache_slots((struct heap_cache *)(uintptr_t)cache, class);

		if (stack->low != low || stack->high != low + heap_class_cached(class) ||
		    stack->top < low || stack->top > stack->high ||
		    (uintptr_t)stack->top % sizeof(void *))
			return false;
	}
	return true;
}

int cache_adopt(struct heap_process *p)
{
	struct heap_cache *cache = (struct heap_cache *)(uintptr_t)p->heap->caches;

	for (; cache; cache = (struct heap_cache *)(uintptr_t)cache->next) {
		if (process_keep_idle(p, cache))
			return -ENOMEM;
	}
	return 0;
}

static struct heap_cache *cache_get(struct heap_process *p)
{
	struct heap_cache *cache;

	process_enter(p);
	pthread_mutex_lock(&p->caches);
	cache = p->idle_count ? p->idle[--p->idle_count] : cache_make(p);
	pthread_mutex_unlock(&p->caches);
	process_leave(p);
	return cache;
}

/* ---- threads -------------------------------------------------------------------------------- */

/* A thread ends: its blocks go back, its caches to the next threads. */
static void cache_thread_ends(void *thread)
{
	struct heap_thread *t = thread;
	struct heap_binding *next;

	for (struct heap_binding *b = t->first; b; b = next) {
		struct heap_process *p = process_hold(b->number);

		next = b->next;
		if (p) {
			process_enter(p);
			cache_empty(p, b->cache);
			process_leave(p);
			pthread_mutex_lock(&p->caches);
			(void)process_keep_idle(p, b->cache); /* the next process has it */
			pthread_mutex_unlock(&p->caches);
		}
		process_let_go();
		free(b);
	}
	memset(t, 0, sizeof(*t));
}

static void cache_begin(void)
{
	pthread_key_create(&cache_key, cache_thread_ends);
}

/* Forgets heaps that were closed. */
static void cache_sweep(struct heap_thread *t)
{
	struct heap_binding **at = &t->first;

	while (*at) {
		struct heap_binding *b = *at;
		bool open = process_hold(b->number);

		process_let_go();
		if (open) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		free(b);
	}
}

static struct heap_binding *cache_new_binding(struct heap_thread *t, struct heap_process *p)
{
	struct heap_binding *b = malloc(sizeof(*b));

	pthread_once(&cache_once, cache_begin);
	if (!b)
		return NULL;
	*b = (struct heap_binding){
		.p = p, .number = p->number, .cache = cache_get(p), .next = t->first};
	if (!b->cache) {
		free(b);
		return NULL;
	}
	t->first = b;
	pthread_setspecific(cache_key, t);
	return b;
}

struct heap_thread *cache_bind(const struct ramp_heap *heap)
{
	struct heap_thread *t = &heap_thread;
	uint64_t epoch = atomic_load(&heap_epoch);
	struct heap_process *p;
	struct heap_binding *b;

	if (t->heap == heap && t->epoch == epoch)
		return t;
	p = process_find(heap);
	if (!p) {
		errno = ENODEV;
		return NULL;
	}
	if (t->epoch != epoch)
		cache_sweep(t);
	for (b = t->first; b && b->number != p->number; b = b->next)
		;
	if (!b && !(b = cache_new_binding(t, p)))
		return NULL;
	t->heap = heap;
	t->fast = p->debug ? NULL : heap;
	t->epoch = epoch;
	t->max = p->max;
	t->cache = b->cache;
	t->p = p;
	return t;
}
