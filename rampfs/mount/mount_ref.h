/*
 * struct mount: counted, ended once, and entered by workers only until it is stopped.
 */
#ifndef RAMP_MOUNT_REF_H
#define RAMP_MOUNT_REF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "handover.h"
#include "mount.h"
#include "park.h"

struct fuse_session;
struct fuse_thread;
struct attr_sync;
struct hints;
struct orphans;
struct ramp_files;
struct keeper_link;
struct offload;

/* So many names are taken back at a time; another one stays, and gets its file when it is used. */
#define DOOMED_MAX 64u

struct mount {
	struct mount_config config;
	ramp_node_t self;
	ramp_incarnation_t incarnation;
	struct timespec born; /* of the store: the times of directories */
	uint64_t since_ms;    /* when it was opened, by park_now_ms */

	struct handover *handover;
	struct park *park;
	struct attr_sync *attr_sync;
	struct hints *hints;
	struct orphans *orphans;
	struct ramp_files *ramp_files;
	struct keeper_link *keeper_link;
	struct offload *offload;

	/* fuse_loop.c */
	struct fuse_session *session;
	struct fuse_thread *threads; /* the fuse pool */
	uint32_t n_threads;
	atomic_bool stopping; /* the pool is to end, whatever the mount does */
	_Atomic uint64_t requests, resent;

	/* inode.c */
	pthread_mutex_t make_lock; /* a row's file is made by one thread */
	/* Rows whose names are taken back: they get no file. Protected by make_lock. */
	ramp_segment_t doomed[DOOMED_MAX];

	/* propose.c: proposed and not finished; that wait for their turn. */
	atomic_uint proposals, waiting_proposals;
	atomic_bool sent_again; /* fuse_takeover.c takes the former life's requests now */

	/* passthrough.c */
	pthread_mutex_t passthrough_lock; /* of the handover's table of passthrough opens, and: */
	uint64_t passthrough_grants;	  /* how many there ever were */

	/* ops_io.c: by segment id: an append's size holds until it is written */
	pthread_mutex_t append_lock[64];

	atomic_bool up;		 /* this node's row has named this memory */
	atomic_uint rows_posted; /* changed rows that the sweep has not looked at yet */

	/* mount_ref.c */
	atomic_uint refs;
	atomic_int ends;  /* 0: it goes on; else 1 + why it ends, by enum mount_end */
	bool ending;	  /* control loop: that was seen there */
	bool end_told;	  /* control loop: config.ended has been called */
	bool stopped;	  /* written by the control loop's thread; protected by work_lock */
	uint32_t working; /* protected by work_lock: workers inside */
	pthread_mutex_t work_lock;
	pthread_cond_t work_done;
	atomic_bool caught_up;	/* the tables hold all that was committed when it was opened */
	atomic_bool catches_up; /* it is being asked for */

	/* Of mount.c. Frees all of it, with the last reference. */
	void (*destroy)(struct mount *m);
	/* Of mount.c. The mount is about to end: calls fn(m) when the last sizes and times have been
	   told, or on time-out. Control loop. */
	void (*finish)(struct mount *m, loop_fn *fn);
};

struct mount *mount_get(struct mount *m);
void mount_put(struct mount *m);
/* A worker is about to use the floors below: false after mount_stop. mount_work_leave after. */
bool mount_work_enter(struct mount *m);
void mount_work_leave(struct mount *m);
/* No worker enters any more; waits for those inside. */
void mount_work_end(struct mount *m);
/* Asks until the tables are known to be no older than this daemon. Control loop, now and then. */
void mount_catch_up(struct mount *m);
/* Serving has ended, or should: config.ended, on the control loop. The first reason counts, but for
   MOUNT_TERMINATE after MOUNT_UNMOUNTED. Any thread. */
void mount_end(struct mount *m, enum mount_end why);

#endif
