/*
 * The mount: the daemon's end of /dev/fuse, which the keeper holds (keeper/keeper.h). It reads
 * requests and answers them.
 */
#ifndef RAMP_MOUNT_H
#define RAMP_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "base/loop.h"
#include "memory/store.h"
#include "meta/meta.h"
#include "programs/programs.h"
#include "pull/pull.h"
#include "transfer/transfer.h"
#include "transport/peers/peer.h"

struct mount;

enum mount_end {
	MOUNT_UNMOUNTED, /* umount(8): without a mount, finish pulls in both directions, then exit 0 */
	MOUNT_TERMINATE, /* the keeper was told to end, and has unmounted: the same, but at once */
	MOUNT_UPGRADE,	 /* hand over to the next daemon, then exit 0: the keeper executes it */
};

/* Returns true where a daemon has served that connection already. `fd` is the mount's private file in
   the store ("mount"). */
bool mount_was_served(int fd, uint64_t connection);

struct mount_config {
	struct loop *loop;
	struct store *store;
	struct meta *meta;
	struct peers *peers;
	struct programs *programs;
	struct pull *pull;
	struct transfers *transfers;

	uint64_t connection;	  /* from keeper_inherited */
	const char *session_path; /* the ioctls tell it to programs */
	const char *mountpoint;	  /* absolute */
	char *const *adopt_argv;  /* executed when the keeper dies; [0] absolute */
	uint32_t threads;	  /* of the fuse pool; 0: 8 */
	bool debug;		  /* libfuse's own trace on stderr */

	/* Called on the control loop when serving has ended, or should: once, and once more with
	   MOUNT_TERMINATE where that comes after MOUNT_UNMOUNTED. */
	void (*ended)(void *arg, enum mount_end why);
	void *arg;
};

/*
 * Reads what an earlier daemon left in the store (saved INIT, appends under way) and registers
 * store_on_change. `config` is copied; strings and argv must outlive the mount.
 */
int mount_open(const struct mount_config *config, struct mount **out, struct ramp_err *err);

/*
 * Takes the connection over: feeds libfuse the saved INIT, has unanswered requests sent again,
 * serves them, starts the threads, and tells the keeper. Everything below must be open, and
 * transfers started. daemon.c calls it on the control thread just before loop_run.
 */
int mount_start(struct mount *mount, struct ramp_err *err);

/* Takes note that a segment's row changed (id), or a node's (0). daemon.c calls it from meta's
   callback. Any thread, also before mount_start; never blocks. */
void mount_row_changed(struct mount *mount, ramp_segment_t id);
/* The same for all segments' rows: a snapshot has replaced the tables. */
void mount_rows_restored(struct mount *mount);

/*
 * Stops reading requests, and ends the threads. Parked requests stay unanswered: the next daemon on
 * this connection has them sent again; where the mount is gone no program waits for them. Call it
 * after the loop has stopped and before the floors below are closed. The keeper knows by then
 * whether another daemon is wanted: exit(0).
 */
void mount_stop(struct mount *mount);
/* Frees the mount. Call it after pull_close, programs_close, meta_close and transfers_free, since
   then no floor calls in any more, with a page, a row, a punched hole or the question for
   passthrough opens; and before loop_close. */
void mount_free(struct mount *mount);

#endif
