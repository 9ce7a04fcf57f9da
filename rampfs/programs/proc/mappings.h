/*
 * What one process maps of the store, as its files in /proc say (mappings.c).
 */
#ifndef RAMP_PROGRAMS_MAPPINGS_H
#define RAMP_PROGRAMS_MAPPINGS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/ids.h"
#include "base/kernel.h"

/* The files of /proc of one process's memory. */
struct mappings {
	dev_t store_dev;
	pid_t pid;		/* 0: no process is known whose memory it is */
	uint32_t agent_tid;	/* its agent's thread, as that calls itself */
	int pagemap, map_files; /* -1: not open */
	bool maps_open;
	pthread_mutex_t lock; /* protects what follows, where it is a text */
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

/* Nothing is open yet. */
void mappings_init(struct mappings *mappings, dev_t store_dev);
/* Opens the process's files of /proc; -ESRCH. */
int mappings_open(struct mappings *mappings, pid_t pid, uint32_t agent_tid);
/* Takes a descriptor of /proc/PID/maps (-1: none), of a memory whose process may be gone. */
void mappings_take(struct mappings *mappings, int maps_fd);
void mappings_close(struct mappings *mappings);
/* fn for each mapping of a file of the store in [lo, hi), until it returns nonzero. 0, that, or
   -errno (-EBUSY: one of them changes all the time). */
int mappings_each(struct mappings *mappings, uint64_t lo, uint64_t hi, proc_mapping_fn *fn,
		  void *arg);
/* In the window: 0 when no page of the file `ino` is present in [lo, hi), and every mapping of it
   lies in `covered` (sorted, n). -EBUSY. */
int mappings_clear(struct mappings *mappings, uint64_t lo, uint64_t hi, uint64_t ino,
		   const struct address_range *covered, size_t n);
/* 1 when a mapping of the file `ino` lies outside of [lo, hi); 0; -errno. All mappings are asked:
   milliseconds where there are thousands. */
int mappings_outside(struct mappings *mappings, uint64_t lo, uint64_t hi, uint64_t ino);
/* 1 when a file that is not the store's is mapped at that address, in *range; 0; -errno. */
int mappings_foreign(struct mappings *mappings, uint64_t addr, struct address_range *range);
/* 1: the first part of [at, end) where nothing is mapped, in *gap; 0: there is none; -errno. */
int mappings_gap(struct mappings *mappings, uint64_t at, uint64_t end, struct address_range *gap);
/* 1 when a private mapping there has pages of its own, which a revoke would throw away; 0; -errno.
   `swapped`: look for such that are swapped out, too (poisoned pages look the same). */
int mappings_copied(struct mappings *mappings, uint64_t start, uint64_t end, bool swapped);
/* 1 when there is a POISON there, *at being the first; 0; -errno. A private mapping's pages that
   are swapped out look the same. */
int mappings_poisoned(struct mappings *mappings, uint64_t start, uint64_t end, uint64_t *at);
/* 1 when a page of a file has an entry of its own there, *at being the first; 0; -errno. */
int mappings_small(struct mappings *mappings, uint64_t start, uint64_t end, uint64_t *at);

#endif
