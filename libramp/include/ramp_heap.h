/*
 * A heap that lives inside a segment: malloc(3) and its kin over memory whose every byte, the heap's own
 * records included, lies between the segment's address and its end. Where the segment goes, the heap goes.
 *
 * It needs nothing of the rest of libramp: any shared mapping of a file does, a rampfs segment as well as a
 * file of /dev/shm, as long as every process maps it at the same address. Pointers into it may be stored in it.
 *
 * Processes. One process at a time. ramp_heap_open refuses (EBUSY) a heap that another living process of this
 * machine has open. A process that has ended, by kill -9 too, or on another machine, leaves the heap sound: the next
 * ramp_heap_open undoes the calls that were cut off. Blocks that were given out stay given out, so a block whose
 * address the program had not stored yet is lost, unless it came from ramp_heap_alloc_to; ramp_heap_each finds it.
 * The child of a fork has no heap: it may open none that its parent has.
 *
 * Threads. All calls may be made by any thread at any time, but for ramp_heap_format, _open, _close, _forget, _check
 * and _each: no other thread may be in a call of the same heap meanwhile. No call is async-signal-safe.
 *
 * Errors. Calls that return int return 0 or a negative errno and fill `err` (unless it is NULL) with one sentence.
 * Calls that return a block return NULL and set errno. ENOMEM: larger than the heap may become; whatever `grow` said
 * (ENOSPC, EDQUOT); EINVAL: an alignment that is no power of two; ENODEV: this process has not opened the heap, or
 * has closed it: nothing was touched.
 * A call that finds the heap misused (a double free, a block of another heap, a record that was overwritten) names it
 * through `misuse`, and changes nothing.
 *
 * All sizes are bytes.
 */
#ifndef RAMP_HEAP_H
#define RAMP_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first byte of the segment; never looked into by callers. */
struct ramp_heap;

#define RAMP_HEAP_ERR_TEXT_BYTES 256
struct ramp_heap_err {
	int code;			     /* a positive errno; 0: nothing has failed */
	char text[RAMP_HEAP_ERR_TEXT_BYTES]; /* NUL-terminated, cut where it is too long */
};

/* ramp_heap_format: the heap is for finding mistakes, for all of its life. Each block has a guard behind its last
   byte and is filled when it is freed; both are looked at in each call. Three to ten times slower, and a block
   takes 16 bytes more. */
#define RAMP_HEAP_DEBUG (1u << 0)

/* A heap's segment is aligned to this many bytes. */
#define RAMP_HEAP_ALIGN 16384

/* All zeros: no growth, misuse aborts. */
struct ramp_heap_options {
	/* ramp_heap_format: the heap never becomes larger: at most the length of the segment's extent. 0: as large as it is.
	   1 % of it, at the heap's beginning, is for records; those of memory that is not in use are holes. */
	uint64_t max_bytes;
	unsigned int flags; /* RAMP_HEAP_* */
	/*
	 * Makes the segment at least that long, and mapped; returns 0 or a negative errno. NULL: it never grows. The heap
	 * asks for more than it needs at once, and for that alone when the first is refused. Called by the thread that
	 * needs memory, with the heap locked: it must not call the heap.
	 */
	int (*grow)(void *arg, uint64_t size_bytes);
	/*
	 * Is told of misuse, in one sentence. NULL: the sentence goes to stderr, and the process aborts. Where it returns,
	 * the call that found the misuse has changed nothing. The heap may be locked: it must not call it.
	 */
	void (*misuse)(void *arg, const char *text);
	void *arg; /* for both */
};

/*
 * Makes a heap of the mapping at `base`, size_bytes long, and opens it; all bytes there are lost. The memory
 * stays the caller's, and must outlive ramp_heap_close. Returns the heap, whose address is `base`, or NULL:
 * EINVAL (not aligned, too small, an unknown flag), EBUSY as ramp_heap_open.
 */
struct ramp_heap *ramp_heap_format(void *base, uint64_t size_bytes,
				   const struct ramp_heap_options *options,
				   struct ramp_heap_err *err);
/*
 * Opens the heap at `base`, after a restart, a move or a kill. Undoes calls that were cut off; takes as long as there
 * were threads, not as there are blocks. Returns the heap or NULL: EINVAL (no heap, or of an unknown version),
 * EFAULT (it was made for another address), ENODATA (the segment is shorter than the heap), EBUSY (another living
 * process of this machine has it open), EUCLEAN (its records are damaged), EEXIST (open in this process).
 */
struct ramp_heap *ramp_heap_open(void *base, uint64_t size_bytes,
				 const struct ramp_heap_options *options,
				 struct ramp_heap_err *err);
/* Gives the threads' cached blocks back, and lets other processes open the heap. Returns 0, or -ENODEV. */
int ramp_heap_close(struct ramp_heap *heap);
/* The same for a heap whose memory is not there any more: touches none of it. Returns 0, or -ENODEV. */
int ramp_heap_forget(struct ramp_heap *heap);

/* Blocks of at least `size` bytes, aligned to 16. A size of 0 is a block of its own. Owned by the caller until freed. */
void *ramp_heap_malloc(struct ramp_heap *heap, size_t size);
/* All zeros. Pages of a large block that nothing was written to since they were punched out stay holes. */
void *ramp_heap_calloc(struct ramp_heap *heap, size_t count, size_t size);
/* `align`: a power of two, up to the heap's size. */
void *ramp_heap_aligned_alloc(struct ramp_heap *heap, size_t align, size_t size);
/* As realloc(3): NULL leaves `block` as it was; realloc of NULL is malloc. A size of 0 frees nothing: it is a small block. */
void *ramp_heap_realloc(struct ramp_heap *heap, void *block, size_t size);
/* Each may take NULL, for nothing. `size` and `align` of the sized ones are those that the block was asked for with. */
void ramp_heap_free(struct ramp_heap *heap, void *block);
void ramp_heap_free_sized(struct ramp_heap *heap, void *block, size_t size);
void ramp_heap_free_aligned_sized(struct ramp_heap *heap, void *block, size_t align, size_t size);
/* How many bytes of the block may be used: as many as were asked for, or more. 0 of NULL. */
size_t ramp_heap_usable_size(struct ramp_heap *heap, const void *block);

/*
 * Takes a block and stores its address in *to, which lies in the heap, in one step: when the process is killed, either
 * both have happened or neither. Returns the block or NULL (*to is as before). EINVAL: `to` is not in the heap.
 */
void *ramp_heap_alloc_to(struct ramp_heap *heap, void **to, size_t size);
/* Stores NULL in *from, which lies in the heap, and frees the block that it named, in one step. */
void ramp_heap_free_from(struct ramp_heap *heap, void **from);

/* The one address that the next process finds by itself. NULL until it is set; a new value is there at once, or not at
   all. ramp_heap_set_root returns 0, -EINVAL: neither NULL nor in the heap, or -ENODEV. */
void *ramp_heap_root(struct ramp_heap *heap);
int ramp_heap_set_root(struct ramp_heap *heap, void *root);

/* Whether the address lies in the heap's memory, which ends where the segment may grow to. */
bool ramp_heap_contains(const struct ramp_heap *heap, const void *address);
/* The heap, open in this process, in whose memory the address lies; or NULL. Touches none of it. */
struct ramp_heap *ramp_heap_of(const void *address);

/*
 * Punches all pages out that hold no block, after the calling thread's and ended threads' cached blocks were given back. A
 * program does so before a move, since holes travel for free. (While it runs, the heap does so itself where
 * free pages are many.) Returns how many bytes were punched out; 0 where the memory takes no holes.
 */
uint64_t ramp_heap_trim(struct ramp_heap *heap);

/*
 * Looks at every record of the heap, and in a debug heap at every guard. Returns 0, or -EUCLEAN and the first
 * damage in words. It gives all threads' cached blocks back.
 */
int ramp_heap_check(struct ramp_heap *heap, struct ramp_heap_err *err);
/*
 * Calls `block` for each block that is given out, in the order of addresses, until it returns other than 0. `block` must
 * not call the heap. Returns what it returned last, or 0; -ENODEV. Gives all threads' cached blocks back.
 */
int ramp_heap_each(struct ramp_heap *heap, int (*block)(void *arg, void *address, size_t usable),
		   void *arg);

struct ramp_heap_stats {
	uint64_t size;	    /* of the segment, as far as the heap uses it */
	uint64_t max;	    /* it never grows larger */
	uint64_t used;	    /* in blocks, in room for small blocks and in records that are in use */
	uint64_t free;	    /* from size, what is left */
	uint64_t unpunched; /* of free: pages may be there */
	uint64_t caches;    /* threads' caches: in use, and free ones for the next threads */
	uint64_t undone; /* calls that were cut off and that the last ramp_heap_open has undone */
};
int ramp_heap_stats(struct ramp_heap *heap, struct ramp_heap_stats *stats);

/* Returns 1 where a thread of this process is in a call that changes a heap within [address, address +
   length); else 0. A malloc or free of a small block changes it by one store, and is never seen. */
int ramp_heap_in_call(const void *address, size_t length);

#ifdef __cplusplus
}
#endif

#endif
