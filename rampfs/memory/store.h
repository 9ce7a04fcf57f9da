/*
 * The store: one tmpfs that belongs to this node, and the segments in it.
 *
 * STATE_DIR/store is mounted huge=within_size,noswap,size=CAPACITY (and spare.h's), root-only, in the
 * host's mount namespace, and outlives the daemon: after kill -9 the next daemon finds every segment again. A
 * segment is a file named by its id in decimal. Beside it, in the same tmpfs and mapped shared, is
 * ID.state with the record (record.h) and the page-state map (pages.h). The file `incarnation` is
 * written when the tmpfs is made: a reboot is another incarnation, a daemon's restart is not.
 *
 * A `struct seg` represents one segment in this store: owned, given, taken, or reserved for an
 * attempt. It is counted: seg_get and store_find take a reference, seg_put gives it back.
 *
 * Thread-safety: any thread may call any function, unless said otherwise.
 */
#ifndef RAMP_STORE_H
#define RAMP_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "about.h"
#include "base/err.h"
#include "base/ids.h"
#include "gate.h"
#include "layout.h"
#include "mapping.h"
#include "owner.h"
#include "record.h"
#include "seg.h"
#include "seg_file.h"
#include "seg_times.h"
#include "touched.h"

struct store;

/*
 * Opens STATE_DIR/store, mounting and formatting it where it is not mounted yet, and finds every
 * segment in it. -EBUSY: another process has it open. A capacity that has changed is set if the
 * used memory fits. A state file that is torn or of an unknown version makes that one segment
 * "damaged": the log and seg_damaged say so, and it is never served. IN_FLIGHT pages become REMOTE.
 */
int store_open(const char *state_dir, uint64_t capacity_bytes, struct store **out,
	       struct ramp_err *err);
/* Frees the tables; the tmpfs stays mounted with all that is in it. Every reference to a segment
   must have been given back. */
void store_close(struct store *store);
/* Unmounts it, for `rampfs --destroy`; -EBUSY while it holds segments, unless force. */
int store_destroy(const char *state_dir, bool force, struct ramp_err *err);
/* Sets the one listener (seg.h), before threads start. */
void store_on_change(struct store *store, store_changed *fn, void *arg);

/* Sets, by flags of mount(2), when reading a segment, by any process, sets its atime (MS_NOATIME or
   MS_STRICTATIME, else MS_RELATIME), and MS_NOEXEC, for mappings. Where the kernel refuses, the log
   says so. */
void store_set_flags(struct store *store, unsigned long mount_flags);

ramp_incarnation_t store_incarnation(struct store *store);
/* Opens a file of the daemon's own in the store (saved INIT, backing ids), which lives as long as
   the store. `name` begins with a letter. Returns a descriptor (O_CLOEXEC) or -errno. */
int store_open_private(struct store *store, const char *name, int flags, mode_t mode);
/* Makes one of them, in place of the one that is there: a daemon that dies meanwhile leaves that as it was.
   Returns 0 or -errno. */
int store_replace_private(struct store *store, const char *name, const void *bytes, size_t len);
struct store_space {
	uint64_t capacity_bytes, used_bytes, free_bytes;
};
void store_space(struct store *store, struct store_space *space);

struct seg *store_find(struct store *store, ramp_segment_t id); /* NULL: not here */
/* Calls fn for each segment, in no order, with a reference held during the call. */
void store_each(struct store *store, void (*fn)(void *arg, struct seg *seg), void *arg);

/*
 * Makes the empty files of a segment. RECORD_OWNED: for create(2) on this node, at `epoch`.
 * RECORD_NONE: reserved for an attempt, which reserve.h fills; a restart drops it. -EEXIST where it
 * is here already; -ENOSPC.
 */
int store_create(struct store *store, ramp_segment_t id, enum record_kind kind, uint64_t epoch,
		 struct seg **out, struct ramp_err *err);
/* The same with the size and the times of its row; these it has noted (seg_note_row), before any
   thread can find it. */
int store_create_dated(struct store *store, ramp_segment_t id, enum record_kind kind,
		       uint64_t epoch, const struct seg_dated *row, struct seg **out,
		       struct ramp_err *err);
/*
 * Unlinks both files, once no node can need them (R7, or an orphan). Access through the gate is
 * -ENOENT from now on; the struct is freed with its last reference.
 * With `prove`: first closes the daemon's own descriptors and mapping, opens the file again and
 * takes a lease (F_SETLEASE F_WRLCK). -EBUSY where another process still has the file open or
 * mapped; then everything is as before. During the proof the gate is closed (-EAGAIN), and seg_open
 * waits.
 */
int store_remove(struct seg *seg, bool prove, struct ramp_err *err);

/* Whether a thread that is about to fill a new file should wait (again; it has waited that many ms already)
   for the memory of segments that go (seg_freeing), as it would have waited in unlink(2) of a tmpfs:
   where they are a good part of the store, and little of it is free. Not for ever. */
bool store_awaits_memory(struct store *store, uint64_t waited_ms);
/* Whether there is no room for that many bytes yet, and will be once those segments are freed. */
bool store_will_have_memory(struct store *store, uint64_t bytes);

/* Tries again to unlink the litter of removed segments, if there is any. Call it from time to time;
   store_create does so before it makes a segment. */
void store_tidy(struct store *store);

#endif
