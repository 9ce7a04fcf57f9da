/*
 * Mappings of the store's files in one process, as its files in /proc show them (mappings.c).
 */
#ifndef RAMP_PROGRAMS_MAPPINGS_H
#define RAMP_PROGRAMS_MAPPINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/ids.h"
#include "base/kernel.h"

struct found_list;

/* Open /proc files of one process's memory. */
struct mappings {
	dev_t store_dev;
	pid_t pid;		/* 0: it is not known which process's memory this is */
	uint32_t agent_tid;	/* the agent's thread id, as the agent sees it */
	int pagemap, map_files; /* -1: not open */
	bool maps_open;
	pthread_mutex_t lock; /* protects what follows, if that is a text */
	struct kernel_maps maps;
};

struct proc_mapping {
	ramp_segment_t id;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};
typedef int proc_mapping_fn(void *arg, const struct proc_mapping *mapping);

struct address_range {
	uint64_t start, end;
};

/* Initializes it with nothing open. */
void mappings_init(struct mappings *mappings, dev_t store_dev);
/* Opens the process's files in /proc. -ESRCH: it has ended. */
int mappings_open(struct mappings *mappings, pid_t pid, uint32_t agent_tid);
/* Takes over a descriptor of /proc/PID/maps (-1: none), of a memory whose process may have
   ended. */
void mappings_take(struct mappings *mappings, int maps_fd);
void mappings_close(struct mappings *mappings);
/* Calls fn for each mapping of a segment, or of the empty file in its place, in [lo, hi), until
   fn returns nonzero. Returns that; 0; or -errno (-EBUSY: a mapping changes all the time). */
int mappings_each(struct mappings *mappings, uint64_t lo, uint64_t hi, proc_mapping_fn *fn,
		  void *arg);
/* Mappings that a revoke knows of. */
struct revoked_ranges {
	const struct address_range *covered; /* sorted; nothing may be present there */
	size_t n_covered;
	const struct address_range *away; /* where page tables were moved to: no matter */
	size_t n_away;
};
/* In the window: returns 0 if no page of the file `ino` is present in [lo, hi), and every mapping of
   it there is known, or the process has ended; -EBUSY: that is not so; -errno: it can't be told. */
int mappings_clear(struct mappings *mappings, uint64_t lo, uint64_t hi, uint64_t ino,
		   const struct revoked_ranges *known);
/* Notes all mappings of the store's files. Returns 0; -errno. Asks for all mappings of the process:
   milliseconds if there are thousands. */
int mappings_files(struct mappings *mappings, struct found_list *found);
/* Returns how many mappings of files there are in [lo, hi), `most` at most; -errno. */
int mappings_count(struct mappings *mappings, uint64_t lo, uint64_t hi, int most);
/* Returns 1 if a file that is not the store's is mapped at that address, with its mapping in
   *range; 0; -errno. */
int mappings_foreign(struct mappings *mappings, uint64_t addr, struct address_range *range);
/* Returns 1, with the first part of [at, end) where nothing is mapped in *gap; 0: there is none;
   -errno. */
int mappings_gap(struct mappings *mappings, uint64_t at, uint64_t end, struct address_range *gap);
/* Returns 1 if a private mapping there has pages of its own, which a revoke would throw away; 0;
   -errno. `swapped`: pages that are swapped out count, too (poisoned pages look the same). */
int mappings_copied(struct mappings *mappings, uint64_t start, uint64_t end, bool swapped);
/* Returns 1 if a page there is poisoned, the first one at *at; 0; -errno. Pages of a private
   mapping that are swapped out look the same; the markers of write protection do not. */
int mappings_poisoned(struct mappings *mappings, uint64_t start, uint64_t end, uint64_t *at);

#endif
