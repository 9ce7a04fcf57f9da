/*
 * The store: one tmpfs of this node's own, and the segments that lie in it.
 *
 * STATE_DIR/store is mounted huge=within_size,noswap,size=CAPACITY, root-only, in the host's mount
 * namespace, and outlives the daemon: after kill -9 the next daemon finds every segment again. A
 * segment is a file named by its id in decimal; beside it stands ID.state with the record
 * (record.h) and the page-state map (pages.h), in the same tmpfs, mapped shared. The file
 * `incarnation` is written when the tmpfs is made: a reboot is another incarnation, a daemon's
 * restart is not.
 *
 * A `struct seg` stands for one segment in this store (owned, given, taken, or reserved for an
 * attempt). It is counted: seg_get/store_find take a reference, seg_put gives it back.
 *
 * The gate: whoever reads or writes a segment's bytes in the daemon stands between seg_enter and
 * seg_leave. A freeze closes the gate and waits until everybody is out; what comes then is told
 * -EAGAIN and parks (mount/park.c) until store_ops.changed says that it is open or gone.
 *
 * Thread-safety: all functions from any thread unless said otherwise.
 */
#ifndef RAMP_STORE_H
#define RAMP_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/ids.h"
#include "record.h"

struct store;
struct seg;

/* Called when something that parked requests wait for may have changed: the gate opened or closed
   for good, a record changed, a pull began, pages arrived or were lost. Any thread; must not block.
   One listener: mount/park.c. */
typedef void store_changed(void *arg, ramp_segment_t id);

/*
 * Opens (mounts and formats, where it is not mounted yet) STATE_DIR/store and finds every segment
 * in it. -EBUSY: another process has it open. A capacity that has changed is set, where it holds
 * what is used. A state file that is torn or of an unknown version makes that one segment
 * "damaged": it is reported in the log and by seg_damaged, never served. IN_FLIGHT pages become
 * REMOTE.
 */
int store_open(const char *state_dir, uint64_t capacity_bytes, struct store **out,
	       struct ramp_err *err);
/* Frees the tables; the tmpfs stays mounted with all that is in it. Every reference to a segment
   must have been given back. */
void store_close(struct store *store);
/* `rampfs --destroy`: unmounts; -EBUSY while it holds segments, unless force. */
int store_destroy(const char *state_dir, bool force, struct ramp_err *err);
void store_on_change(struct store *store, store_changed *fn, void *arg);
/* Calls it: of what only the caller knows, as that a pull has begun. */
void seg_tell(struct seg *seg);

/* Of mount(2)'s flags: when reading a segment, by anybody, sets its atime (MS_NOATIME or MS_STRICTATIME,
   else MS_RELATIME), and MS_NOEXEC, for mappings. Where the kernel refuses, the log says so. */
void store_set_flags(struct store *store, unsigned long mount_flags);

ramp_incarnation_t store_incarnation(struct store *store);
/* A file of the daemon's own in the store (saved INIT, backing ids): lives as the store does. */
/* `name` begins with a letter. Returns a descriptor (O_CLOEXEC) or -errno. */
int store_open_private(struct store *store, const char *name, int flags, mode_t mode);
struct store_space {
	uint64_t capacity_bytes, used_bytes, free_bytes;
};
void store_space(struct store *store, struct store_space *space);

struct seg *store_find(struct store *store, ramp_segment_t id); /* NULL: not here */
struct seg *seg_get(struct seg *seg);
void seg_put(struct seg *seg);
/* Calls fn for each segment, in no order, with a reference held during the call. */
void store_each(struct store *store, void (*fn)(void *arg, struct seg *seg), void *arg);
/*
 * The same for those that were touched since the last call: taken (seg_get), entered, opened, or
 * marked by seg_touch; and for those that somebody holds still, or that are passed through, whose
 * files change without a word. fn says whether it wants to see the segment again the next time.
 * One caller.
 */
void store_each_touched(struct store *store, bool (*fn)(void *arg, struct seg *seg), void *arg);
void seg_touch(struct seg *seg);

/*
 * Makes the empty files of a segment. RECORD_OWNED: create(2) on this node, at `epoch`.
 * RECORD_NONE: reserved for an attempt (room.h fills it; in memory only: a restart drops it).
 * -EEXIST where it is here already; -ENOSPC.
 */
int store_create(struct store *store, ramp_segment_t id, enum record_kind kind, uint64_t epoch,
		 struct seg **out, struct ramp_err *err);
/* The same with its row's times, which it has (and are noted: seg_note_row) before anybody finds
 * it. */
int store_create_dated(struct store *store, ramp_segment_t id, enum record_kind kind,
		       uint64_t epoch, const struct timespec times[2], struct seg **out,
		       struct ramp_err *err);
/*
 * Unlinks both files, once nobody can need them (R7, or an orphan). Access through the gate is
 * -ENOENT from now on; the struct goes with its last reference.
 * With `prove`: closes our own descriptors and mapping first, opens anew and takes a lease
 * (F_SETLEASE F_WRLCK); -EBUSY where somebody else still has the file open or mapped, and then
 * everything is as before. Meanwhile the gate is closed (-EAGAIN), and seg_open waits.
 */
int store_remove(struct seg *seg, bool prove, struct ramp_err *err);
/*
 * seg_goes: its name has gone, and its memory goes next, which takes the kernel 120 ms for a GiB of
 * small pages; unlink(2) has returned by then. That counts until it is done (the struct goes), or
 * seg_stays says that it is in use after all.
 * store_makes_room: who is about to fill a new file waits for that, as he would have in tmpfs's
 * unlink: where a good part of the store goes, and little of it is free; not for ever.
 * store_makes_room_for: there is no room for so much yet, and there will be.
 */
void seg_goes(struct seg *seg);
void seg_stays(struct seg *seg);
bool store_makes_room(struct store *store, uint64_t waited_ms);
bool store_makes_room_for(struct store *store, uint64_t bytes);
/* Tries again to unlink what of removed segments could not be, if there is any: from time to time.
   Before it makes a segment, store_create does so itself. */
void store_tidy(struct store *store);

ramp_segment_t seg_id(const struct seg *seg);
/* The segment's file, open O_RDWR for as long as the reference; never hand it to another process
   (each attachment has a description of its own: seg_open). -1: it is damaged, or there is no
   descriptor left, which those who stand behind the gate have been told there. */
int seg_fd(struct seg *seg);
/* A new description of the file, O_RDWR or O_RDONLY, O_CLOEXEC; the caller closes it. */
int seg_open(struct seg *seg, int access_mode);

/*
 * A description for a program that is not trusted. With a writable one it can keep the file's lock
 * (the kernel's, of the inode) for as long as it likes: by a write(2) of a page that does not come.
 * So from then on whatever takes that lock (write, truncate, fallocate, lseek for data or holes,
 * futimens; not read, fstat, nor a load or store) waits for the program, and is for threads that
 * can be spared: those that can't ask first, by seg_direct_begin. It stays so until the segment has
 * left; the next daemon knows it, too.
 */
int seg_hand_out(struct seg *seg, int access_mode);
bool seg_handed(struct seg *seg);
/* True: nobody has such a descriptor, and nobody gets one before seg_direct_end; soon, please.
   False: seg_handed. Any thread; never blocks. */
bool seg_direct_begin(struct seg *seg);
void seg_direct_end(struct seg *seg);
/* Of one that is handed: until those have ended that began before it was. */
void seg_direct_over(struct seg *seg);
uint64_t seg_size(struct seg *seg); /* the file's st_size */
bool seg_damaged(struct seg *seg);
bool seg_removed(struct seg *seg); /* by store_remove; whatever its record said */

/*
 * Mode, uid and gid as the metadata had them last, beside the bytes: an unlinked file that is still
 * open has no row, and fstat(2) must go on telling them. Zeros where they were never noted.
 */
struct seg_owner {
	uint32_t mode, uid, gid; /* mode: permission bits */
};
void seg_note_owner(struct seg *seg, const struct seg_owner *owner);
struct seg_owner seg_owner(struct seg *seg);

/* Beside the bytes: passthrough was granted (mount/pass.c), so mappings may stand that no session
   answers for. */
int seg_note_passed(struct seg *seg, bool passed); /* 0 or -errno: not noted */
bool seg_passed(struct seg *seg);

/* This daemon is about to move it away, from CONNECT until that has ended; in memory only. No
   passthrough is granted meanwhile, which would make the move fail. */
void seg_set_leaving(struct seg *seg, bool leaving);
bool seg_leaving(struct seg *seg);

/* Frozen for as long as its pages take to the other node (mode copy), which has bounds of its own:
   who waits at the gate has none. In memory only. */
void seg_set_copying(struct seg *seg, bool copying);
bool seg_copying(struct seg *seg);

/*
 * The time of the last write of a segment whose pages are still coming: what the daemon stores
 * would change the file's own st_mtime. It is held beside the bytes from seg_hold_mtime (the
 * source's) until seg_release_mtime gives it to the file, when nothing comes any more. Times that
 * int64_t nanoseconds can't say are the nearest that it can. Any thread.
 */
void seg_hold_mtime(struct seg *seg, struct timespec mtime);
void seg_release_mtime(struct seg *seg);
int seg_stat(struct seg *seg, struct stat *st); /* fstat(2), with the time held */
int seg_set_times(struct seg *seg,
		  const struct timespec times[2]); /* futimens(2), also the one held */
void seg_note_write(
	struct seg *seg); /* before a user's write, truncate, fallocate or punched hole */

/*
 * The times that were proposed to the metadata as hints, by this daemon or by one before it, and
 * that may still come back as a change of the row: which is nobody's wish then. Kept beside the
 * bytes. The control loop.
 */
void seg_note_hint(struct seg *seg, const struct timespec times[2]); /* before it is proposed */
bool seg_hinted(struct seg *seg, const struct timespec times[2]);
void seg_forget_hints(struct seg *seg); /* a later one is decided, so all of them are */

/*
 * The times that the row had when it was last looked at, beside the bytes, too: what it says
 * otherwise by then is somebody's wish, or a hint. The control loop.
 */
void seg_note_row(struct seg *seg, const struct timespec times[2]);
void seg_forget_row(struct seg *seg);
/* Which of them differ (atime, mtime). False: none were noted. */
bool seg_row_news(struct seg *seg, const struct timespec times[2], bool news[2]);

/* user.ramp.pages=small: no huge pages from the daemon's hand, where scattered stores would take
   2 MiB each. Kept beside the bytes. Any thread; mappings that stand are changed, too. */
void seg_set_small(struct seg *seg, bool small);
bool seg_small(struct seg *seg);
/* Before a write(2) or fallocate(2) there: takes the pages one by one where small ones are wished,
   for the kernel would take 2 MiB around a hole. A favour: whoever writes finds out about room, and
   where there is none nothing is taken. */
void seg_take_small(struct seg *seg, uint64_t offset, uint64_t len);

/* ---- the gate ------------------------------------------------------------------------------ */

/* 0: go on, and seg_leave after. -EAGAIN: frozen, park. -EREMOTE: not ours (any more).
   -ENOENT: removed. -EIO: damaged. -EMFILE, -ENFILE: its file can't be opened. Never blocks. */
int seg_enter(struct seg *seg);
void seg_leave(struct seg *seg);
/* Closes the gate (-EBUSY: it is closed) and waits until everybody is out, at most timeout_ms
   (-ETIMEDOUT: opened again). Blocks: never on the control loop. */
int seg_freeze(struct seg *seg, uint32_t timeout_ms, struct ramp_err *err);
/* Opens it again, after an abort. After a record GIVEN the gate says -EREMOTE by itself. */
void seg_thaw(struct seg *seg);
/* True from a truncate or punched hole since seg_note_layout, whoever made it, or when st_blocks is
 another; sets *grown to how many bytes st_blocks has grown since (0: none). */
void seg_note_layout(struct seg *seg);
/* Whether a list of that many bytes (room_populated) is of the layout that was noted. Where not,
   something was stored in between; or what was noted counted blocks that khugepaged had taken for the
   holes of what it then could not collapse, and later stores would make it look unchanged: it is to be
   noted and listed again. */
bool seg_layout_is_noted(struct seg *seg, uint64_t populated_bytes);
bool seg_layout_changed(struct seg *seg, uint64_t *grown);
/* Something may have been cut out of it since: then more may have come than *grown says. */
bool seg_layout_was_cut(struct seg *seg);
/* Nobody will ask any more. */
void seg_forget_layout(struct seg *seg);
/* Whoever truncates or punches through the daemon says so (between enter and leave), when it is done:
   a layout that is noted in the middle of it is not one that anybody may rely on. */
void seg_layout_cut(struct seg *seg);

/* The daemon's own mapping of [0, size rounded up to pages), made when first asked for and grown
   as the file grows; nobody waits for page faults in it, and while it is there khugepaged fills
   none of the segment's holes. Touch only pages that are LOCAL and populated (a load from a hole
   allocates a page; beyond the end: SIGBUS). Counted: seg_unmap once per seg_map; a base stays
   good until the last user has gone. */
int seg_map(struct seg *seg, uint8_t **base, uint64_t *len, struct ramp_err *err);
void seg_unmap(struct seg *seg);

#endif
