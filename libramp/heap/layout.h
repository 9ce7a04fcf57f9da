/*
 * How a heap's records lie in its segment.
 *
 *   0                    the header, struct ramp_heap
 *   HEAP_TABLE           a struct heap_desc for each granule up to max
 *   granule `first`...   memory in runs of granules: free; a slab (blocks of one class); a large block; a thread's cache
 *   granule `top`...     never used, or given back to the end
 *
 * A run's first granule has its kind and length. Of a slab, every granule has the kind, the class and the slab's first
 * granule; of a free run the last one has the length, too. All other granules are HEAP_INSIDE, so an address that
 * begins no block is always told from one that does.
 *
 * All records are 64-bit words, so that one store changes each, and the log (undo.h) can hold any of them. Addresses
 * in them are addresses of this process: a heap lies at one address for life.
 */
#ifndef RAMP_HEAP_LAYOUT_H
#define RAMP_HEAP_LAYOUT_H

#include <stdint.h>

/* libramp.so hides all but its calls. */
#pragma GCC visibility push(default)
#include "include/ramp_heap.h"
#pragma GCC visibility pop

#define HEAP_MAGIC   "RAMPHEAP"
#define HEAP_VERSION 1u

#define GRANULE_SHIFT 14
#define GRANULE	      (UINT64_C(1) << GRANULE_SHIFT)
#define GRANULES_MAX  (UINT64_C(1) << 31)

/* Fills a freed block of a debug heap. */
#define HEAP_FREED_BYTE 0xdf

#define HEAP_CLASSES	40
#define HEAP_SMALL_MAX	32768u /* larger blocks are runs of granules */
#define HEAP_MAP_WORDS	16
#define HEAP_BLOCKS_MAX (HEAP_MAP_WORDS * 64) /* of a slab */

enum heap_kind {
	HEAP_INSIDE, /* of a run, or not in use; zeros are so */
	HEAP_FREE,
	HEAP_FREE_END,
	HEAP_SLAB,
	HEAP_LARGE,
	HEAP_CACHE,
	HEAP_RECORDS, /* header and table */
};

/* The first word of a granule's record. */
#define DESC_KIND(w)   ((enum heap_kind)((w)&0xff))
#define DESC_CLASS(w)  ((unsigned int)((w) >> 8 & 0xff))
#define DESC_DIRTY(w)  ((w) >> 16 & 1) /* of a free run: pages may be there */
#define DESC_NUMBER(w) ((w) >> 32) /* a run's length in granules; of a slab, its first granule */

static inline uint64_t heap_word(enum heap_kind kind, unsigned int class, bool dirty,
				 uint64_t number)
{
	return number << 32 | (dirty ? 1u << 16 : 0) | class << 8 | (unsigned int)kind;
}

struct heap_desc {
	uint64_t word;
	uint64_t next,
		prev;  /* granules: in a bin of free runs or in a class's list of slabs. 0: none */
	uint64_t used; /* of a slab: blocks that are not free */
	uint64_t map[HEAP_MAP_WORDS]; /* of a slab: a bit for each block that is free */
};

/* Old values to write back, the last one first. */
#define HEAP_LOG_MAX 124
struct heap_log {
	uint64_t n;
	struct {
		uint64_t address, value;
	} entry[HEAP_LOG_MAX];
};

/* A stack of cached blocks of one class: slots [low, top) are taken, [top, high) are room. */
struct heap_stack {
	void **top, **low, **high;
};

/* A thread's cache: one granule. Blocks in it count as used in their slabs. */
struct heap_cache {
	uint64_t next; /* the address of the next cache; 0: none */
	/* The block of a call that has not returned yet, to be given back if it never does; 0: none. */
	uint64_t held;
	struct heap_log log;
	struct heap_stack stack[HEAP_CLASSES];
	void *slots[];
};

#define HEAP_BINS 128

/* The process that has the heap open. All zeros: none. */
struct heap_owner {
	uint64_t boot[2]; /* of the machine */
	uint64_t pid_space, pid, started;
};

struct ramp_heap {
	char magic[8];
	uint32_t version, flags;
	uint64_t base, max, size;	  /* max and size in bytes, whole granules */
	uint64_t desc_bytes, cache_bytes; /* of the library that made it */
	uint64_t root;			  /* an address, or 0 */
	struct heap_owner owner;
	/* The lock `granules` (process.h) protects these: */
	uint64_t first, top;		    /* granules */
	uint64_t fresh;			    /* memory from this granule on is zeros */
	uint64_t used;			    /* granules in slabs, large blocks and caches */
	uint64_t dirty;			    /* granules of free runs that may have pages */
	uint64_t caches;		    /* the address of the first cache */
	uint64_t bins_used[HEAP_BINS / 64]; /* a bit for each bin that has a run */
	uint64_t bin[HEAP_BINS];	    /* the first free run of each length */
	/* Each class's lock: */
	uint64_t partial[HEAP_CLASSES]; /* the first slab that has free blocks */
	/* For what belongs to no thread's cache; the lock `caches`. */
	struct heap_log log;
};

#define HEAP_TABLE ((sizeof(struct ramp_heap) + 63) / 64 * 64)

_Static_assert(sizeof(void *) == sizeof(uint64_t), "addresses are words");
_Static_assert(sizeof(struct heap_desc) == 160, "1 % of a granule");
_Static_assert(sizeof(struct ramp_heap) < GRANULE, "the header is in the first granule");

static inline struct heap_desc *heap_desc(const struct ramp_heap *heap, uint64_t granule)
{
	return (struct heap_desc *)((uintptr_t)heap + HEAP_TABLE) + granule;
}

static inline void *heap_address(const struct ramp_heap *heap, uint64_t granule)
{
	return (void *)((uintptr_t)heap + (granule << GRANULE_SHIFT));
}

static inline uint64_t heap_granule(const struct ramp_heap *heap, const void *address)
{
	return ((uintptr_t)address - (uintptr_t)heap) >> GRANULE_SHIFT;
}

static inline uint64_t heap_granules_for(uint64_t bytes)
{
	return (bytes + GRANULE - 1) >> GRANULE_SHIFT;
}

/* ---- classes of small blocks ---------------------------------------------------------------- */

/* 16, 32, ... 128, then four for each doubling: 160, 192, 224, 256, 320, ... 32768. */
static inline unsigned int heap_class(size_t size)
{
	unsigned int log;

	if (size <= 128)
		return size ? (unsigned int)(size - 1) >> 4 : 0;
	log = 63u - (unsigned int)__builtin_clzll(size - 1);
	return 8 + 4 * (log - 7) + ((unsigned int)((size - 1) >> (log - 2)) & 3);
}

static inline uint32_t heap_class_bytes(unsigned int class)
{
	if (class < 8)
		return 16 * (class + 1);
	return (5 + (class & 3)) << (((class - 8) >> 2) + 5);
}

/* Slabs of classes below 8 are one granule, those up to 1 KiB four, the others sixteen. */
static inline uint32_t heap_class_granules(unsigned int class)
{
	return class < 8 ? 1 : class < 20 ? 4 : 16;
}

static inline uint32_t heap_class_blocks(unsigned int class)
{
	return (heap_class_granules(class) << GRANULE_SHIFT) / heap_class_bytes(class);
}

/* How many blocks a thread's cache holds: 32 KiB of them, and 2 to 64. */
static inline uint32_t heap_class_cached(unsigned int class)
{
	uint32_t n = 32768 / heap_class_bytes(class);

	return n > 64 ? 64 : n < 2 ? 2 : n;
}

#endif
