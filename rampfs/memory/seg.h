/*
 * What a store and a segment are made of: for the files of this folder alone. Others use store.h,
 * record.h, pages.h and room.h.
 *
 * ID.state as it lies in the store:
 *
 *   0     4096             4096 + map
 *   | header | page-state map, two bits a page, sparse where LOCAL |
 *
 * The header is written once, but for the two record slots. The map is
 * there only while something may be missing (map_pages > 0).
 */
#ifndef RAMP_SEG_H
#define RAMP_SEG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "base/ids.h"
#include "record.h"
#include "store.h"

#define STATE_MAGIC	   UINT64_C(0x0065746174736d72) /* "rmstate" */
#define STATE_VERSION	   1u
#define STATE_HEADER_BYTES 4096u
#define STATE_SLOT_BYTES   128u

/* Lives in the store, on this machine only, so it is as the compiler lays it out. */
#define HELD_NOT  0
#define SEG_HINTS 4 /* of daemons that were killed one soon after the other */

struct state_header {
	uint64_t magic;
	uint32_t version;
	uint32_t crc; /* of what follows up to map_pages, and of magic and version */
	ramp_incarnation_t incarnation;
	ramp_segment_t id;
	_Atomic uint64_t map_pages; /* how many pages the map covers; 0: no map, all LOCAL */
	_Atomic uint64_t unlisted;  /* 1: the map was marked REMOTE as a whole, holes too; or: */
#define UNLISTED_KEPT 2		    /* and room_keep was called */
	uint8_t slots[2][STATE_SLOT_BYTES];
	_Atomic uint64_t passed;     /* 1: seg_note_passed */
	_Atomic uint64_t small;	     /* 1: seg_set_small */
	_Atomic int64_t mtime;	     /* seg_hold_mtime: ns since 1970; HELD_NOT: the file's holds */
	int64_t hints[SEG_HINTS][2]; /* seg_note_hint: atime and mtime; 0, 0: none */
	uint32_t next_hint;
	int64_t row[2];		 /* seg_note_row: atime and mtime; 0, 0: not known */
	_Atomic uint64_t handed; /* 1: seg_hand_out */
};
_Static_assert(sizeof(struct state_header) <= STATE_HEADER_BYTES, "the header fits in its page");

struct store {
	char *path; /* STATE_DIR/store */
	int dir_fd, lock_fd;
	int layout_fd;		       /* layout.c; -1: no fanotify */
	int guard_fd;		       /* mapping.c: a userfaultfd; -1: none */
	pthread_mutex_t layout_lock;   /* from an event's reading to its count */
	_Atomic uint64_t layouts_lost; /* so often is there no telling whose an event was */
	_Atomic uint64_t going_bytes;  /* the sum of its segments' */
	ramp_incarnation_t incarnation;
	store_changed *changed; /* set before threads start */
	void *changed_arg;
	pthread_mutex_t lock; /* protects table and `listed` of its segments */
	void *table;	      /* of tsearch(3), by id; each entry holds a reference */
	atomic_uint awake;    /* segments with an open file or a mapped header */
	atomic_bool litter;   /* files are there that are no segment's and could not be unlinked */

	pthread_mutex_t owner_lock; /* its segments' owner and attribute of it (owner.c) */

	pthread_mutex_t touched_lock; /* protects the lists, and `touched` and `link` of segments */
	LIST_HEAD(, seg) touched;     /* each holds a reference */
	LIST_HEAD(, seg) looked_at;   /* the same, while store_each_touched goes on */
};

struct seg_mapping {
	struct seg_mapping *next; /* older and smaller */
	uint8_t *base;
	void *guard; /* as long; NULL: none */
	uint64_t len;
};

struct seg {
	struct store *store; /* must outlive it */
	ramp_segment_t id;
	atomic_uint refs;
	_Atomic uint64_t gate;	/* gate.c */
	_Atomic uint64_t going; /* bytes: seg_goes */
	atomic_int fd;		/* -1: not open: at rest, or damaged and without a file */
	/* NULL: at rest, or damaged and without one. What it says of a segment at rest is what NULL
	   means to every reader: no map, no time held, nothing passed; `small` and `handed` stand
	   below. */
	struct state_header *_Atomic state;
	atomic_bool awake;   /* counted in store->awake */
	atomic_bool small;   /* as in the header */
	atomic_bool handed;  /* as in the header */
	atomic_uint direct;  /* seg_direct_begin */
	bool listed;	     /* in the table; protected by store->lock */
	atomic_bool touched; /* in one of store's lists */
	LIST_ENTRY(seg) link;

	struct seg_owner owner; /* if `owner_known`; protected by store->owner_lock */
	bool owner_known;

	pthread_mutex_t lock; /* protects the fields down to `noted_cuts` */
	pthread_cond_t out;   /* the last one has left the gate, or the gate is closed no more */
	struct record record;
	uint64_t sequence;	      /* of the record's slot */
	struct seg_mapping *mappings; /* newest first */
	uint32_t map_users;
	uint64_t noted_blocks, noted_cuts;

	atomic_bool leaving;   /* seg_set_leaving */
	atomic_bool copying;   /* seg_set_copying */
	_Atomic uint64_t cuts; /* truncates and punched holes so far */

	/* pages.c. The array is replaced only while the record is NONE; a settle puts zeros in its
	   place, under the same address. */
	_Atomic uint64_t *map;	  /* words of 32 pages; NULL: no map */
	size_t map_bytes;	  /* of the mapping */
	_Atomic uint64_t *chunks; /* a bit for each page of the map that is populated */
	_Atomic uint64_t map_pages, missing, lost;

	int slack_fd;	      /* room.c: a placeholder's; -1: none. Protected by lock */
	bool scarce;	      /* some of it has been used: no huge pages in mappings */
	uint64_t slack_bytes; /* what is left of it */
};

/* tmpfs.c: the mount, the lock against a second daemon, the incarnation. */
/* 1: it is there, 0: it is not, or -errno: there is no telling. */
int tmpfs_mounted(const char *path, struct ramp_err *err);
int tmpfs_mount(const char *path, uint64_t capacity_bytes, struct ramp_err *err);
int tmpfs_set_flags(const char *path, unsigned long mount_flags); /* 0 or -errno */
int tmpfs_unmount(const char *path, bool force, struct ramp_err *err);
int tmpfs_lock(int dir_fd, int *lock_fd, struct ramp_err *err);
int tmpfs_incarnation(int dir_fd, ramp_incarnation_t *incarnation, struct ramp_err *err);

/* layout.c */
void layout_open(struct store *store);
void layout_close(struct store *store);

/* seg.c */
int seg_make(struct store *store, ramp_segment_t id, const struct record *record,
	     const struct timespec times[2], struct seg **out, struct ramp_err *err);
/* Finds one at store_open. 1: there (or damaged), 0: was a leftover and is gone now, or -errno. */
int seg_load(struct store *store, ramp_segment_t id, struct seg **out, struct ramp_err *err);
void seg_state_name(ramp_segment_t id, char name[32]);
void seg_data_name(ramp_segment_t id, char name[32]);

/* Unlinks both files, ID.state first: a data file alone is what a kill left. Where the first stays,
   so does the other, and a daemon that is started meanwhile finds the whole segment. What stays is
   litter. false: something does. store->lock is held, or nobody else knows the store. */
bool seg_unlink(struct store *store, ramp_segment_t id);
bool seg_unlink_name(struct store *store, const char *name); /* one file, in the same way */
/* The proof of store_remove: nobody else has the file open or mapped, else -EBUSY. seg->lock is
   held, and nobody enters. */
int seg_prove_alone(struct seg *seg, struct ramp_err *err);

/*
 * Rest: a node may hold more segments than a process may have open files or mappings
 * (vm.max_map_count is 65,530). So beyond SEG_AWAKE_MAX of them, one that only the table refers to
 * has neither. Whoever has a reference may wake it, from any thread, and it stays awake at least as
 * long as the reference; only what is OWNED and whole rests, so that no step of a migration but the
 * first can fail by waking.
 */
#define SEG_AWAKE_MAX 4096
int seg_wake_file(struct seg *seg);   /* 0; -errno, -EIO where it is damaged */
int seg_wake_header(struct seg *seg); /* the same */
/* A reference that does not count as a touch. */
static inline struct seg *seg_hold(struct seg *seg)
{
	atomic_fetch_add(&seg->refs, 1);
	return seg;
}
/* Before the caller gives his reference back. */
void seg_may_rest(struct seg *seg);
/* The descriptor becomes the segment's, or is closed where it has one. */
void seg_take_file(struct seg *seg, int fd);
int seg_replace_file(struct seg *seg, int fd);	    /* the one it has is closed; 0 or -errno */
int seg_take_header(struct seg *seg, int state_fd); /* maps it; the descriptor stays the caller's */
/* Gives up all that is open and mapped. Nobody else looks. */
void seg_close(struct seg *seg);
void seg_untouch(struct seg *seg);    /* after GATE_GONE */
void rest_close(struct store *store); /* gives back the references of the touched */

/* mapping.c */
void guard_open(struct store *store);
void guard_close(struct store *store);
void seg_map_small(struct seg *seg); /* no huge pages in its mappings; seg->lock is held */
/* As mmap(2), without a guard and without an access that its atime shows. */
void *mapping_of_file(struct seg *seg, int prot, uint64_t from, uint64_t len);
void mapping_want_small(void *base, uint64_t len); /* it takes no huge pages */
void mapping_drop_all(struct seg *seg);		   /* nobody uses them */

/* gate.c */
#define GATE_FROZEN  (UINT64_C(1) << 63)
#define GATE_REMOTE  (UINT64_C(1) << 62) /* the record does not serve */
#define GATE_GONE    (UINT64_C(1) << 61) /* removed */
#define GATE_DAMAGED (UINT64_C(1) << 60)
#define GATE_FLAGS   (GATE_FROZEN | GATE_REMOTE | GATE_GONE | GATE_DAMAGED)
void gate_set(struct seg *seg, uint64_t flag);
void gate_clear(struct seg *seg, uint64_t flag);
bool gate_empty(struct seg *seg);

/* record.c */
void record_write_first(struct seg *seg, const struct record *record);
/* Reads the newer whole slot into seg->record; -EIO: there is none. */
int record_load(struct seg *seg);

/* pages.c */
/* -EUCLEAN: the map makes no sense; else it can't be looked at now. */
int pages_load(struct seg *seg, int state_fd, struct ramp_err *err);
void pages_free(struct seg *seg);

#endif
