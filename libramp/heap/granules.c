#include "granules.h"

#include <errno.h>
#include <sys/mman.h>

#define GRANULES_LOOKED_AT  16	       /* in a bin whose runs may be too short */
#define GRANULES_GROW_LEAST (1u << 20) /* bytes */
#define GRANULES_DIRTY	    (32u << 20 >> GRANULE_SHIFT)

/* ---- bins ----------------------------------------------------------------------------------- */

unsigned int granules_bin(uint64_t n)
{
	unsigned int log;

	if (n < 16)
		return (unsigned int)n;
	log = 63u - (unsigned int)__builtin_clzll(n);
	return 16 + 4 * (log - 4) + ((unsigned int)(n >> (log - 2)) & 3);
}

static void granules_mark_bin(struct heap_step *step, unsigned int bin, bool used)
{
	uint64_t *word = &step->heap->bins_used[bin / 64], bit = UINT64_C(1) << bin % 64;

	if (!(*word & bit) == used)
		step_put(step, word, *word ^ bit);
}

/* Puts a run into its bin. */
static void granules_insert(struct heap_step *step, uint64_t granule, uint64_t n, bool dirty)
{
	struct ramp_heap *heap = step->heap;
	struct heap_desc *d = heap_desc(heap, granule);
	unsigned int bin = granules_bin(n);
	uint64_t head = heap->bin[bin];

	step_put(step, &d->word, heap_word(HEAP_FREE, 0, dirty, n));
	if (n > 1)
		step_put(step, &heap_desc(heap, granule + n - 1)->word,
			 heap_word(HEAP_FREE_END, 0, 0, n));
	step_put(step, &d->next, head);
	step_put(step, &d->prev, 0);
	if (head)
		step_put(step, &heap_desc(heap, head)->prev, granule);
	step_put(step, &heap->bin[bin], granule);
	granules_mark_bin(step, bin, true);
	if (dirty)
		step_put(step, &heap->dirty, heap->dirty + n);
}

/* Takes a run out of its bin; its granules are nothing's then. Returns its length. */
static uint64_t granules_remove(struct heap_step *step, uint64_t granule, bool *dirty)
{
	struct ramp_heap *heap = step->heap;
	struct heap_desc *d = heap_desc(heap, granule);
	uint64_t n = DESC_NUMBER(d->word), next = d->next, prev = d->prev;
	unsigned int bin = granules_bin(n);

	*dirty = DESC_DIRTY(d->word);
	if (next)
		step_put(step, &heap_desc(heap, next)->prev, prev);
	step_put(step, prev ? &heap_desc(heap, prev)->next : &heap->bin[bin], next);
	if (!heap->bin[bin])
		granules_mark_bin(step, bin, false);
	step_put(step, &d->word, HEAP_INSIDE);
	if (n > 1)
		step_put(step, &heap_desc(heap, granule + n - 1)->word, HEAP_INSIDE);
	if (*dirty)
		step_put(step, &heap->dirty, heap->dirty - n);
	return n;
}

/* Finds a free run of at least n granules; 0: there is none. */
static uint64_t granules_find(const struct ramp_heap *heap, uint64_t n)
{
	unsigned int bin = granules_bin(n);
	uint64_t granule = heap->bin[bin], bits;

	for (int i = 0; granule && i < GRANULES_LOOKED_AT; i++) {
		if (DESC_NUMBER(heap_desc(heap, granule)->word) >= n)
			return granule;
		granule = heap_desc(heap, granule)->next;
	}
	if (++bin == HEAP_BINS)
		return 0;
	bits = heap->bins_used[bin / 64] >> bin % 64;
	if (bits)
		return heap->bin[bin + (unsigned int)__builtin_ctzll(bits)];
	if (bin < 64 && heap->bins_used[1])
		return heap->bin[64 + (unsigned int)__builtin_ctzll(heap->bins_used[1])];
	return 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

static int granules_grow(struct heap_step *step, uint64_t need)
{
	struct ramp_heap *heap = step->heap;
	const struct ramp_heap_options *options = &step->p->options;
	uint64_t want = heap->size + heap->size / 8;
	int rc;

	if (need > heap->max || !options->grow)
		return -ENOMEM;
	if (want < heap->size + GRANULES_GROW_LEAST)
		want = heap->size + GRANULES_GROW_LEAST;
	if (want < need)
		want = need;
	want &= ~(GRANULE - 1);
	if (want > heap->max)
		want = heap->max;
	rc = options->grow(options->arg, want);
	if (rc && want > need) {
		want = need;
		rc = options->grow(options->arg, want);
	}
	if (rc)
		return rc < 0 ? rc : -ENOMEM;
	step_put(step, &heap->size, want);
	return 0;
}

/* Raises `top` to that granule. Returns 0 or a negative errno. */
static int granules_raise(struct heap_step *step, uint64_t top)
{
	struct ramp_heap *heap = step->heap;
	int rc = top > heap->size >> GRANULE_SHIFT ? granules_grow(step, top << GRANULE_SHIFT) : 0;

	if (rc)
		return rc;
	step_put(step, &heap->top, top);
	if (heap->fresh < top)
		step_put(step, &heap->fresh, top);
	return 0;
}

/* ---- take, give ----------------------------------------------------------------------------- */

/* Takes n granules, wherever they are. */
static int granules_take_any(struct heap_step *step, uint64_t n, uint64_t *granule, bool *dirty)
{
	struct ramp_heap *heap = step->heap;
	uint64_t found = granules_find(heap, n), length;

	if (found) {
		length = granules_remove(step, found, dirty);
		if (length > n)
			granules_insert(step, found + n, length - n, *dirty);
		*granule = found;
		return 0;
	}
	*granule = heap->top;
	*dirty = heap->top < heap->fresh;
	return granules_raise(step, heap->top + n);
}

/* Puts a run beside free neighbours or the end. */
static void granules_release(struct heap_step *step, uint64_t granule, uint64_t n, bool dirty)
{
	struct ramp_heap *heap = step->heap;
	uint64_t before = heap_desc(heap, granule - 1)->word, end = granule + n;
	bool other;

	if (DESC_KIND(before) == HEAP_FREE || DESC_KIND(before) == HEAP_FREE_END) {
		granule -= DESC_NUMBER(before);
		n += granules_remove(step, granule, &other);
		dirty |= other;
	}
	if (end < heap->top && DESC_KIND(heap_desc(heap, end)->word) == HEAP_FREE) {
		n += granules_remove(step, end, &other);
		dirty |= other;
	}
	if (granule + n == heap->top)
		step_put(step, &heap->top, granule);
	else
		granules_insert(step, granule, n, dirty);
}

int granules_take(struct heap_step *step, uint64_t n, uint64_t align, uint64_t *granule, bool *zero)
{
	struct ramp_heap *heap = step->heap;
	uint64_t total = n + align - 1, base = heap->base >> GRANULE_SHIFT, front;
	bool dirty;
	int rc;

	if (n > GRANULES_MAX || align > GRANULES_MAX)
		return -ENOMEM;
	rc = granules_take_any(step, total, granule, &dirty);
	if (rc)
		return rc;
	front = -(base + *granule) & (align - 1);
	if (front + n < total)
		granules_release(step, *granule + front + n, total - front - n, dirty);
	if (front)
		granules_release(step, *granule, front, dirty);
	*granule += front;
	*zero = !dirty;
	step_put(step, &heap->used, heap->used + n);
	return 0;
}

void granules_give(struct heap_step *step, uint64_t granule, uint64_t n)
{
	step_put(step, &heap_desc(step->heap, granule)->word, HEAP_INSIDE);
	step_put(step, &step->heap->used, step->heap->used - n);
	granules_release(step, granule, n, true);
}

bool granules_extend(struct heap_step *step, uint64_t granule, uint64_t n, uint64_t wanted)
{
	struct ramp_heap *heap = step->heap;
	uint64_t end = granule + n, more = wanted - n, length;
	bool dirty;

	if (end == heap->top) {
		if (granules_raise(step, granule + wanted))
			return false;
	} else {
		if (DESC_KIND(heap_desc(heap, end)->word) != HEAP_FREE ||
		    DESC_NUMBER(heap_desc(heap, end)->word) < more)
			return false;
		length = granules_remove(step, end, &dirty);
		if (length > more)
			granules_insert(step, end + more, length - more, dirty);
	}
	step_put(step, &heap->used, heap->used + more);
	return true;
}

/* ---- punching out --------------------------------------------------------------------------- */

/* Returns whether the pages are gone. */
static bool granules_punch(struct heap_process *p, uint64_t granule, uint64_t n)
{
	if (atomic_load(&p->no_punch))
		return false;
	if (madvise(heap_address(p->heap, granule), n << GRANULE_SHIFT, MADV_REMOVE) == 0)
		return true;
	atomic_store(&p->no_punch, true);
	return false;
}

static uint64_t granules_punch_all(struct heap_process *p, struct heap_log *log)
{
	struct ramp_heap *heap = p->heap;
	uint64_t done = 0, bottom;

	for (unsigned int bin = 0; bin < HEAP_BINS && heap->dirty; bin++) {
		for (uint64_t g = heap->bin[bin]; g; g = heap_desc(heap, g)->next) {
			uint64_t *word = &heap_desc(heap, g)->word, n = DESC_NUMBER(*word);
			struct heap_step step = step_begin(p, log);

			if (!DESC_DIRTY(*word) || !granules_punch(p, g, n))
				continue;
			step_put(&step, word, heap_word(HEAP_FREE, 0, 0, n));
			step_put(&step, &heap->dirty, heap->dirty - n);
			step_done(&step);
			done += n;
		}
	}
	bottom = heap->top;
	if (heap->fresh > bottom && granules_punch(p, bottom, heap->fresh - bottom)) {
		done += heap->fresh - bottom;
		heap_store(&heap->fresh, bottom);
	}
	return done << GRANULE_SHIFT;
}

uint64_t granules_trim(struct heap_process *p, struct heap_log *log)
{
	uint64_t done;

	pthread_mutex_lock(&p->granules);
	done = granules_punch_all(p, log);
	pthread_mutex_unlock(&p->granules);
	return done;
}

/* ---- steps ---------------------------------------------------------------------------------- */

void granules_lock(struct heap_step *step)
{
	if (step->locked)
		return;
	pthread_mutex_lock(&step->p->granules);
	step->locked = true;
}

void granules_done(struct heap_step *step)
{
	struct ramp_heap *heap = step->heap;
	uint64_t dirty;

	step_done(step);
	if (!step->locked)
		return;
	dirty = heap->dirty + (heap->fresh - heap->top);
	if (dirty > GRANULES_DIRTY && dirty > heap->used / 4 && !atomic_load(&step->p->no_punch))
		granules_punch_all(step->p, step->log);
	pthread_mutex_unlock(&step->p->granules);
	step->locked = false;
}

void granules_undo(struct heap_step *step)
{
	step_undo(step);
	if (step->locked)
		pthread_mutex_unlock(&step->p->granules);
	step->locked = false;
}
