/*
 * A segment's data file: its descriptor, its size and times, and descriptors for others.
 *
 * Thread-safety: any thread.
 */
#ifndef RAMP_MEMORY_SEG_FILE_H
#define RAMP_MEMORY_SEG_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"

struct seg;

/* The segment's file, open O_RDWR for as long as the reference. Never hand it to another process:
   each attachment has an open file description of its own (seg_open). -1: the segment is damaged,
   or no descriptor is left; a thread inside the gate was told about the latter there. */
int seg_fd(struct seg *seg);
/* A new open file description, O_RDWR or O_RDONLY, O_CLOEXEC; the caller closes it. -errno. */
int seg_open(struct seg *seg, int access_mode);

/*
 * A description for a program that is not trusted. With a writable one the program can hold the
 * file's lock (the kernel's, of the inode) for as long as it likes: by a write(2) of a page that
 * does not come. So from then on each call that takes that lock waits for the program: write,
 * truncate, fallocate, lseek for data or holes, futimens; not read, fstat, a load or a store. Such
 * calls are for threads that can be spared; other threads first ask seg_direct_begin. This lasts
 * until the segment has left; the next daemon knows it, too.
 */
int seg_hand_out(struct seg *seg, int access_mode);
bool seg_handed_out(struct seg *seg);
/* True: no program holds a writable descriptor, and none is handed out until seg_direct_end, which
   the caller calls soon. False: seg_handed_out. Never blocks. */
bool seg_direct_begin(struct seg *seg);
void seg_direct_end(struct seg *seg);
/* Of a segment that is handed out: waits for direct sections that began before that. */
void seg_direct_over(struct seg *seg);

uint64_t seg_size(struct seg *seg);		/* the file's st_size */
int seg_stat(struct seg *seg, struct stat *st); /* fstat(2), with the mtime held (seg_times.h) */

/* ---- for this folder alone ----------------------------------------------------------------- */

struct timespec seg_from_ns(int64_t ns); /* since 1970 */
bool seg_holds_mtime(struct seg *seg);
/* The proof of store_remove: -EBUSY where any other open file description or mapping of the file
   exists. seg->lock is held, and no thread enters. */
int seg_prove_alone(struct seg *seg, struct ramp_err *err);

#endif
