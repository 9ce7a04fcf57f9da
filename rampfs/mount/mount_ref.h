/*
 * struct mount: it is counted, ends once, and workers enter it until it is stopped.
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

/* The most names that are being taken back at a time. A further name stays, and gets its file
   when it is used. */
#define DOOMED_MAX 64u

struct mount {
	struct mount_config config;
	ramp_node_t self;
	ramp_incarnation_t incarnation;
	struct timespec born; /* when the store was made: the times of directories */
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
	atomic_bool stopping; /* the pool has to end, in whatever state the mount is */
	_Atomic uint64_t requests, resent;

	/* inode.c */
	pthread_mutex_t make_lock; /* held while a row's file is made */
	/* Rows whose names are being taken back: they get no file. Protected by make_lock. */
	ramp_segment_t doomed[DOOMED_MAX];

	/* propose.c: proposals in flight; proposals that wait until some of those are finished. */
	atomic_uint proposals, waiting_proposals;
	atomic_bool sent_again; /* fuse_takeover.c serves requests that were sent again */

	/* ask_leader.c: numbers of questions. One is under way where `sent` is ahead. */
	pthread_mutex_t ask_lock; /* protects the next four */
	uint64_t ask_sent, ask_answered;
	uint64_t ask_since_ms; /* when the last one was sent */
	bool ask_more;	       /* a request waits for the next one */

	atomic_bool mkdir_hinted; /* ops_name.c: the log has said what mkdir's callers meet */

	/* passthrough.c */
	/* Protects the handover's table of passthrough opens, and the next. */
	pthread_mutex_t passthrough_lock;
	uint64_t passthrough_grants; /* the number of grants ever made */

	/* ops_io.c: hashed by segment id. Held from reading the file size until the append is
	   written. */
	pthread_mutex_t append_lock[64];

	atomic_bool up;		 /* this node's row has named this incarnation */
	atomic_uint rows_posted; /* changed rows that row_sync has not looked at yet */

	/* mount_ref.c */
	atomic_uint refs;
	atomic_int ends;  /* 0: it serves; else 1 + the enum mount_end for which it ends */
	bool ending;	  /* control loop: it has seen `ends` */
	bool end_told;	  /* control loop: config.ended has been called */
	bool stopped;	  /* written by the control loop's thread, protected by work_lock */
	uint32_t working; /* protected by work_lock: workers inside */
	pthread_mutex_t work_lock;
	pthread_cond_t work_done;
	atomic_bool caught_up;	/* the tables hold all that was committed when it was opened */
	atomic_bool catches_up; /* meta_sync for that is under way */

	/* mount.c's: frees the mount, with the last reference. */
	void (*destroy)(struct mount *m);
	/* mount.c's: the mount is about to end. Calls fn(m) when the last sizes and times have been
	   told, or on time-out. Control loop. */
	void (*finish)(struct mount *m, loop_fn *fn);
};

struct mount *mount_get(struct mount *m);
void mount_put(struct mount *m);
/* Lets a worker use the floors below until mount_work_leave. Returns false after mount_stop. */
bool mount_work_enter(struct mount *m);
void mount_work_leave(struct mount *m);
/* Lets no worker enter any more, and waits for those inside. */
void mount_work_end(struct mount *m);
/* Asks for a linearizable read until the tables are known to be no older than this daemon. Control
   loop, called again and again. */
void mount_catch_up(struct mount *m);
/* Ends serving: calls config.ended on the control loop. The first reason counts, except that
   MOUNT_TERMINATE may follow MOUNT_UNMOUNTED. Any thread. */
void mount_end(struct mount *m, enum mount_end why);

#endif
