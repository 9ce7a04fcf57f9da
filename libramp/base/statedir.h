/*
 * A node's state directory, as mkfs.rampfs makes it and rampfs reads it.
 *
 *	STATE_DIR/journal.db	the metadata (meta/)
 *	STATE_DIR/key		the cluster key, 0600
 *	STATE_DIR/cluster.conf	the founding configuration, canonical
 *				(of one that joined: the members as they were then)
 *	STATE_DIR/node		this node's name
 *	STATE_DIR/lock		held (flock) by the keeper and the daemon that run on it, or by a
 *				program that makes or destroys it
 *	STATE_DIR/store/	the store's mount point
 *	STATE_DIR/store/failed	the journal has failed (rampfs/without_meta.h)
 */
#ifndef RAMP_STATEDIR_H
#define RAMP_STATEDIR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "err.h"

#define STATEDIR_KEY_BYTES	32
#define STATEDIR_KEY_FILE_BYTES 4096 /* a key file is not longer */
#define STATEDIR_NOTE		"store/failed"
#define STATEDIR_KEY_FILE_MIN	16 /* nor shorter */

struct statedir {
	char path[PATH_MAX]; /* absolute, without links */
	char node[RAMP_NODE_NAME_MAX + 1];
	uint8_t key[STATEDIR_KEY_BYTES]; /* hashed; wipe after use */
	struct config_cluster config;	 /* freed by statedir_free */
};

/* Whether a node was made there. Its journal may be missing: rampfs says what becomes of that. */
bool statedir_is_one(const char *path);
/* Reads and checks all of these files but the journal. */
int statedir_read(const char *path, struct statedir *dir, struct ramp_err *err);
void statedir_free(struct statedir *dir);

/* Writes PATH/name into `out` (PATH_MAX bytes); -ENAMETOOLONG. */
int statedir_file(const char *path, const char *name, char *out, struct ramp_err *err);

/* Takes the lock: returns a descriptor (O_CLOEXEC) that the caller keeps open for as long as it runs
   on the directory; -EBUSY, with the holder's pid, if another process does. */
int statedir_lock(const char *path, struct ramp_err *err);

/* Reads a key file (a regular file, not readable by group or others, 16 to 4096 bytes) into
   `bytes`; returns its length or a negative errno (-ENOENT also: its maker removed it again). */
int statedir_read_key_file(const char *path, uint8_t bytes[STATEDIR_KEY_FILE_BYTES],
			   struct ramp_err *err);
/*
 * Makes a key file of 32 random bytes in hexadecimal, 0600, which is there whole or not at all, and
 * returns the same as reading it. As long as *fd is open every other reader waits, so that until then
 * the file can still be removed. -EEXIST.
 */
int statedir_make_key_file(const char *path, uint8_t bytes[STATEDIR_KEY_FILE_BYTES], int *fd,
			   struct ramp_err *err);

/* Computes the cluster's id: an HMAC, under the key, of the canonical founding configuration. */
int statedir_cluster_id(const struct config_cluster *config, const uint8_t key[STATEDIR_KEY_BYTES],
			uint8_t id[32], struct ramp_err *err);

#endif
