/*
 * Where a segment's file has data.
 *
 * Units: bytes.
 */
#ifndef RAMP_MEMORY_FIND_DATA_H
#define RAMP_MEMORY_FIND_DATA_H

#include <stdbool.h>
#include <stdint.h>

struct seg;

struct data_range {
	uint64_t offset, len; /* bytes, page-aligned */
};

/*
 * Finds data as lseek(SEEK_DATA, SEEK_HOLE) does, but by the page cache and without the file's lock,
 * which a program may hold (seg_handed_out). *run: the first run of data in [from, to), as far as it
 * was looked; len 0: there is none before its offset, which is behind `from` unless that is `to`.
 * Looks no further than a little into `enough` bytes of data, and no longer than a millisecond or
 * two. `base`: where the file is mapped, at least up to `to`; the file may have been cut since.
 * `from` is page-aligned. Returns 0; 1: the run may continue behind its end; -errno: the kernel
 * does not say. Any thread.
 */
int find_data_run(struct seg *seg, uint8_t *base, uint64_t from, uint64_t to, uint64_t enough,
		  struct data_range *run);

/* ---- for this folder alone ----------------------------------------------------------------- */

/* A walk over the data of `seg`, which the caller sets; the other fields begin as 0. It maps the
   segment where a program may hold its file's lock. */
struct data_walk {
	struct seg *seg;
	uint8_t *base; /* NULL: not mapped (yet); may be set by the caller, with `mapped` */
	uint64_t mapped;
	bool unmap;
};
/* Finds the next run of data in [from, to), to the byte, at least as far as `to`. 0; -ENXIO: there
   is none; another -errno. */
int data_walk_next(struct data_walk *walk, uint64_t from, uint64_t to, uint64_t *data,
		   uint64_t *hole);
void data_walk_end(struct data_walk *walk);

#endif
