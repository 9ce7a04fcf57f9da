/*
 * Heaps that this process has open: what belongs to the process and not to the segment, so locks, callbacks, and which
 * thread has which cache. A process that ends takes all of it with it, so that nothing needs to be reset.
 *
 * Order of locks: opened, caches, a class, granules.
 */
#ifndef RAMP_HEAP_PROCESS_H
#define RAMP_HEAP_PROCESS_H

#include <pthread.h>
#include <stdatomic.h>

#include "layout.h"

struct heap_process {
	struct ramp_heap *heap;
	uint64_t number; /* never used twice: a thread's binding to a closed heap is told by it */
	uint64_t max;	 /* bytes; as the header has it, without touching it */
	uint64_t undone;
	bool debug;
	atomic_bool no_punch; /* the memory takes no holes */
	atomic_uint calls; /* threads in a call that may change the heap by more than one store */
	struct ramp_heap_options options;
	pthread_mutex_t granules; /* runs, bins, size */
	pthread_mutex_t class[HEAP_CLASSES];
	pthread_mutex_t caches;	  /* the two fields below, and the list of caches */
	struct heap_cache **idle; /* caches that no thread has */
	uint32_t idle_count, idle_room;
	struct heap_process *next;
};

/* Counts up at each open, close and fork: a thread's binding is good while it has not changed. */
extern atomic_ullong heap_epoch;

/* Makes the process's part of a heap. Returns it, or NULL and errno. It is found only after process_add. */
struct heap_process *process_new(struct ramp_heap *heap, uint64_t max,
				 const struct ramp_heap_options *options);
void process_delete(struct heap_process *p);
void process_add(struct heap_process *p);
/* Takes it out of the list; NULL: it is not open here. */
struct heap_process *process_remove(const struct ramp_heap *heap);
struct heap_process *process_find(const struct ramp_heap *heap);
/* Finds the one whose memory, up to max, overlaps [address, address + length). */
struct heap_process *process_at(const void *address, uint64_t length);
/* Returns whether a thread is in a call that changes a heap there. */
bool process_in_call(const void *address, uint64_t length);
/* A thread begins and ends such a call. */
static inline void process_enter(struct heap_process *p)
{
	atomic_fetch_add(&p->calls, 1);
}
static inline void process_leave(struct heap_process *p)
{
	atomic_fetch_sub(&p->calls, 1);
}
/* Holds the list, for a thread that ends: a heap in it stays open. */
struct heap_process *process_hold(uint64_t number);
void process_let_go(void);

/* Keeps a cache for the next thread. Returns 0 or -ENOMEM (it is lost to this process, not to the next). */
int process_keep_idle(struct heap_process *p, struct heap_cache *cache);

/* Fills `owner` with this process. */
void process_self(struct heap_owner *owner);
/* Whether that process runs on this machine, as another than this one. */
bool process_is_another(const struct heap_owner *owner);

/* Names misuse of a heap; aborts unless the heap's user wants to hear of it. */
void process_misuse(const struct heap_process *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Fills `err` and returns -code. */
int heap_error(struct ramp_heap_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
