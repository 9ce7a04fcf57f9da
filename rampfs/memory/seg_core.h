/*
 * What a store and a segment are made of, and their ground: for the files of this folder alone.
 * Others use store.h and what that includes.
 *
 * ID.state as it lies in the store:
 *
 *   0        4096                                            4096 + map
 *   | header | page-state map, two bits a page, sparse where LOCAL |
 *
 * The header is written once, except for the two record slots and the atomic fields. The map exists
 * only while pages may be missing (map_pages > 0).
 *
 * The files of this folder, ground first; each calls only those above it:
 *
 *   seg_core.c                  names, flags, references; the structs below
 *   tmpfs.c  owner.c  pages.c   the mount; mode, uid and gid; page states
 *   open_cache.c                which segments have an open file and a mapped header
 *   gate.c                      the freeze barrier
 *   seg_file.c  record.c  stores.c
 *                               the data file; the ownership record; stores of the daemon
 *   seg_times.c  about.c  mapping.c  layout.c  find_data.c
 *                               times; the note of a row; the daemon's mapping; whether holes moved; where
 *                               data is
 *   populated.c  reserve.c  collapse.c
 *                               the list of data ranges; room for it; huge pages afterwards
 *   seg.c                       making, finding, unlinking and freeing one segment
 *   touched.c                   the list of segments that were used
 *   store.c                     the table of all segments
 */
#ifndef RAMP_SEG_CORE_H
#define RAMP_SEG_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/ids.h"
#include "owner.h"
#include "page_set.h"
#include "record.h"
#include "seg.h"

#define STATE_MAGIC	   UINT64_C(0x0065746174736d72) /* "rmstate" */
#define STATE_VERSION	   1u
#define STATE_HEADER_BYTES 4096u
#define STATE_SLOT_BYTES   128u
#define STATE_ABOUT_BYTES  512u

#define HELD_NOT  0 /* state_header.mtime: no time is held */
#define SEG_HINTS 4 /* one for each of several daemons that were killed in quick succession */

/* Lives in the store, on this machine only, so the compiler's layout is the format. */
struct state_header {
	uint64_t magic;
	uint32_t version;
	uint32_t crc; /* of magic, version, incarnation and id */
	ramp_incarnation_t incarnation;
	ramp_segment_t id;
	_Atomic uint64_t map_pages; /* how many pages the map covers; 0: no map, all LOCAL */
	_Atomic uint64_t unlisted;  /* 1: the map was marked REMOTE as a whole, holes too; or: */
#define UNLISTED_KEPT 2		    /* and reserve_keep was called */
	uint8_t slots[2][STATE_SLOT_BYTES];
	_Atomic uint64_t passed; /* 1: seg_note_passed */
	_Atomic uint64_t small;	 /* 1: seg_set_small */
	_Atomic int64_t mtime;	 /* seg_hold_mtime: ns since 1970; HELD_NOT: the file's counts */
	int64_t hints[SEG_HINTS][2]; /* seg_note_hint: atime and mtime; 0, 0: none */
	uint32_t next_hint;
	int64_t row[2];			  /* seg_note_row: atime and mtime; 0, 0: not known */
	_Atomic uint64_t handed;	  /* 1: seg_hand_out */
	uint8_t about[STATE_ABOUT_BYTES]; /* about.c */
	_Atomic uint64_t giving;	  /* seg_note_giving; 0: not */
	_Atomic uint64_t old;		  /* 1: pages_note_old */
};
_Static_assert(sizeof(struct state_header) <= STATE_HEADER_BYTES, "the header fits in its page");

/* Called for a file of the store that a program cut: layout.c to store.c. */
typedef void store_cut_fn(struct store *store, ramp_segment_t id);

struct store {
	char *path; /* STATE_DIR/store */
	int dir_fd, lock_fd;
	int layout_fd;		       /* layout.c; -1: no fanotify */
	int guard_fd;		       /* mapping.c: a userfaultfd; -1: none */
	store_cut_fn *on_cut;	       /* layout.c; set by layout_open */
	pthread_mutex_t layout_lock;   /* held from reading an event until it is counted */
	_Atomic uint64_t layouts_lost; /* how many events could not be attributed to a segment */
	_Atomic uint64_t going_bytes;  /* the sum of `going` of its segments */
	ramp_incarnation_t incarnation;
	store_changed *changed; /* set before threads start */
	void *changed_arg;
	pthread_mutex_t lock; /* protects table and `listed` of its segments */
	void *table;	      /* of tsearch(3), by id; each entry holds a reference */
	atomic_uint awake;    /* segments with an open file or a mapped header */
	int spare_fd;	      /* spare.c; -1: none. Protected by lock */
	uint64_t spare_bytes; /* what it holds. Protected by lock */
	atomic_bool litter;   /* files of removed segments are left that could not be unlinked */

	pthread_mutex_t
		owner_lock; /* protects `owner` of its segments and that attribute (owner.c) */

	pthread_mutex_t
		touched_lock;	    /* protects both lists, and `touched` and `link` of segments */
	LIST_HEAD(, seg) touched;   /* each entry holds a reference */
	LIST_HEAD(, seg) looked_at; /* the same, during store_each_touched */
};

struct seg_mapping {
	struct seg_mapping *next; /* older and smaller */
	uint8_t *base;
	void *guard; /* as long as the mapping; NULL: none */
	uint64_t len;
};

struct seg {
	struct store *store; /* must outlive it */
	ramp_segment_t id;
	atomic_uint refs;
	_Atomic uint64_t gate;	     /* gate.c */
	_Atomic uint64_t going;	     /* bytes: seg_freeing */
	_Atomic uint64_t left_bytes; /* seg_set_left */
	atomic_int fd;		     /* -1: not open: at rest, or damaged and without a file */
	/* NULL: at rest, or damaged and without a header. For a segment at rest every reader takes
	   NULL as: no map, no time held, not passed, not giving. `small` and `handed` are copied below. */
	struct state_header *_Atomic state;
	atomic_bool awake;   /* counted in store->awake */
	atomic_bool small;   /* as in the header */
	atomic_bool handed;  /* as in the header */
	atomic_bool about;   /* the header has a whole note (about.c) */
	atomic_uint direct;  /* seg_direct_begin */
	bool listed;	     /* in the table; protected by store->lock */
	atomic_bool touched; /* in one of store's lists */
	LIST_ENTRY(seg) link;

	struct seg_owner owner; /* if `owner_known`; protected by store->owner_lock */
	bool owner_known;

	pthread_mutex_t lock; /* protects the fields down to `noted_cuts` */
	pthread_cond_t out;   /* the last thread left the gate, or the gate opened */
	struct record record;
	uint64_t sequence;	      /* of the record's slot */
	struct seg_mapping *mappings; /* newest first */
	uint32_t map_users;
	uint64_t noted_blocks, noted_cuts;

	atomic_bool leaving;   /* seg_set_leaving */
	atomic_bool copying;   /* seg_set_copying */
	_Atomic uint64_t cuts; /* truncates and punched holes until now */

	/* pages.c. The array is replaced only while the record is NONE; a settle puts zeros in its
	   place, at the same address. */
	_Atomic uint64_t *map;	  /* words of 32 pages; NULL: no map */
	size_t map_bytes;	  /* of the mapping */
	_Atomic uint64_t *chunks; /* a bit for each page of the map that is populated */
	_Atomic uint64_t map_pages, missing, lost;

	/* Protected by lock. */
	uint64_t slack_bytes;	/* reserve.c: how much slack is left */
	struct page_set stored; /* stores.c */
	uint64_t unknown_cuts;	/* store->layouts_lost, when stores were taken */
	int slack_fd;		/* the placeholder's; -1: none */
	bool scarce;		/* some slack was used: no huge pages in mappings */
	bool stores_lost;	/* a store could not be noted */
	bool layout_unseen;	/* cuts by others are not heard of */

	atomic_bool stores_watched; /* written under lock */
};

void seg_state_name(ramp_segment_t id, char name[32]);
void seg_data_name(ramp_segment_t id, char name[32]);

/* Takes a reference that does not count as a touch. */
static inline struct seg *seg_hold(struct seg *seg)
{
	atomic_fetch_add(&seg->refs, 1);
	return seg;
}

#endif
