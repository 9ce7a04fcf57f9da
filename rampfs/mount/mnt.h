/*
 * The mount from inside: what its files share.
 */
#ifndef RAMP_MNT_H
#define RAMP_MNT_H

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "handover.h"
#include "mount.h"
#include "park.h"

struct sweep;
struct view;
struct server;
struct control;
struct spares;

/* So many names are taken back at a time; another one stays, and gets its file when it is used. */
#define DOOMED_MAX 64u

struct mount {
	struct mount_config config;
	ramp_node_t self;
	ramp_incarnation_t incarnation;
	struct timespec born; /* of the store: the times of directories */

	struct handover *handover;
	struct park *park;
	struct sweep *sweep;
	struct view *view;
	struct fuse_session *session;
	struct server *servers; /* the fuse pool */
	uint32_t n_servers;
	struct control *control;
	struct spares *spares;

	pthread_mutex_t make_lock; /* a row's file is made by one thread */
	/* Rows whose names are taken back: they get no file. Protected by make_lock. */
	ramp_segment_t doomed[DOOMED_MAX];
	/* change.c: proposed and not finished; that wait for their turn. */
	atomic_uint changes, waiting_changes;
	atomic_bool sent_again;	   /* fuse_loop.c takes the former life's requests now */
	pthread_mutex_t pass_lock; /* pass.c: of the handover's table of passthrough opens, and: */
	uint64_t pass_grants;	   /* how many there ever were */
	pthread_mutex_t
		append_lock[64]; /* by segment id: an append's size holds until it is written */

	uint32_t refs;	  /* atomic */
	atomic_int ends;  /* 0: it goes on; else 1 + why it ends, by enum mount_end */
	bool ending;	  /* control loop: that was seen there */
	bool end_told;	  /* control loop: config.ended has been called */
	bool stopping;	  /* atomic: the pool is to end, whatever the mount does */
	bool stopped;	  /* written by the control loop's thread; protected by work_lock */
	uint32_t working; /* protected by work_lock: workers inside */
	pthread_mutex_t work_lock;
	pthread_cond_t work_done;

	atomic_bool caught_up;	/* the tables hold all that was committed when it was opened */
	atomic_bool catches_up; /* it is being asked for */
	atomic_bool up;		/* this node's row has named this memory */

	uint32_t rows_posted;	   /* atomic: changed rows that the sweep has not looked at yet */
	uint64_t requests, resent; /* atomic */
	uint64_t since_ms;	   /* when it was opened, by park_now_ms */
};

struct mount *mount_get(struct mount *m);
void mount_put(struct mount *m);
/* A worker is about to use the floors below: false after mount_stop. mount_work_leave after. */
bool mount_work_enter(struct mount *m);
void mount_work_leave(struct mount *m);
/* Asks until the tables are known to be no older than this daemon. Control loop, now and then. */
void mount_catch_up(struct mount *m);
/* Serving has ended, or should: config.ended, on the control loop. The first reason counts, but for
   MOUNT_TERMINATE after MOUNT_UNMOUNTED. Any thread. */
void mount_end(struct mount *m, enum mount_end why);

/* ---- fuse_loop.c ---------------------------------------------------------------------------- */

/* Of the request that this thread is serving. */
uint64_t fuse_loop_unique(void); /* without the mark of a resend */
bool fuse_loop_resent(void);
/* A write by somebody who may not keep set-user-ID and set-group-ID. */
bool fuse_loop_kills_setid(void);

/* Answers the request that this thread is serving with a body that libfuse does not know, and frees
   it. -ENOENT: nobody waits for it any more. */
int fuse_loop_reply(fuse_req_t req, const void *body, size_t len);

/* The largest read or write that the kernel is told to send: each thread keeps that much memory. On
   a kernel without preemption nobody gets the processor while /dev/fuse copies one, whatever his
   priority: at 512 KiB, p99 of others' page faults was a third longer beside who fills the store,
   and writes in large pieces a sixth faster. */
#define REQUEST_BYTES (128u << 10)
#define REPLY_BYTES   (1u << 20)
/* This thread's reply buffer of REPLY_BYTES: present and locked, since a kill in the middle of the
   kernel's copy from a missing page would make the request EIO. NULL: no memory. */
uint8_t *reply_buffer(void);
/* As reply_buffer, of any length: for receiving. */
void *locked_buffer(size_t len);

int fuse_loop_open(struct mount *m, struct ramp_err *err);
int fuse_loop_start(struct mount *m, struct ramp_err *err);
void fuse_loop_stop(struct mount *m);

/* ---- kernel_side.c -------------------------------------------------------------------------- */

/* The mount's own device, without asking ourselves; 0: not to be had. Any thread. */
uint64_t mount_device(struct mount *m);
/* Has the kernel let go of every name of this mount that is not in use: inodes that nobody has open
   go with theirs, and FORGETs follow. Costs as much as names are cached. Blocks. */
void mount_drop_names(struct mount *m);

/* ---- control.c: the keeper's socket --------------------------------------------------------- */

/* Control thread. */
int control_open(struct mount *m, struct ramp_err *err);
void control_close(struct mount *m);

/* ---- ops.c ---------------------------------------------------------------------------------- */

extern const struct fuse_lowlevel_ops mount_ops;

#endif
