/*
 * Slabs: runs of granules cut into blocks of one class, with a bit for each block that is free. A block's own bytes
 * hold nothing of the heap's. Slabs with free blocks are in their class's list; the lowest free block is taken first,
 * so that few pages are touched. All calls are steps with the class's lock held.
 */
#ifndef RAMP_HEAP_SLABS_H
#define RAMP_HEAP_SLABS_H

#include "granules.h"

/*
 * Takes up to `want` blocks of one slab; of a new one, where there is none with free blocks and `may_make`. Returns how
 * many, or a negative errno.
 */
int slabs_pull(struct heap_step *step, unsigned int class, void **blocks, uint32_t want,
	       bool may_make);
/* Gives a block back. Returns 0, or -EINVAL: it is none, or is free already (which is named as misuse). */
int slabs_push(struct heap_step *step, unsigned int class, void *block);
/* Gives slabs that hold no block back. */
void slabs_trim(struct heap_process *p, struct heap_log *log);

/* An address, as the heap sees it. */
struct heap_block {
	enum heap_kind kind; /* HEAP_SLAB or HEAP_LARGE; any other: no block begins there */
	unsigned int class;
	uint64_t granule; /* of the slab or large block */
	uint32_t index;	  /* in the slab */
	uint64_t bytes;
	bool free; /* slabs_is_free has found it free */
};
/* Needs no lock for a block that is given out: what is read never changes while it is. */
struct heap_block slabs_look(const struct heap_process *p, const void *address);
/* Whether a slab's block is free; with the class's lock. */
bool slabs_is_free(const struct ramp_heap *heap, struct heap_block *is);
/* Names what is wrong with an address that should be a block's. */
void slabs_misuse(const struct heap_process *p, const void *address, const struct heap_block *is);

#endif
