/*
 * Inode numbers, names and attributes.
 *
 *   1 the root    2 .ramp    3.. its files    16 + n the directory of node n    4096.. segments
 *
 * A number itself tells its kind, so that a daemon which starts on a living connection needs no
 * table. Functions read the node's own tables and fstat(2) files of the store; they do not wait.
 */
#ifndef RAMP_INODE_H
#define RAMP_INODE_H

#include <sys/stat.h>

#include "libfuse.h"
#include "mount_ref.h"

#define INODE_ROOT     1
#define INODE_RAMP     2
#define INODE_STATUS   3
#define INODE_NODES    4
#define INODE_METRICS  5
#define INODE_SEGMENTS 6
#define INODE_NODE     16 /* + the node's number */

enum inode_kind {
	INODE_IS_NONE,
	INODE_IS_ROOT,
	INODE_IS_RAMP,
	INODE_IS_RAMP_FILE,
	INODE_IS_NODE,
	INODE_IS_SEGMENT
};

enum inode_kind inode_kind(fuse_ino_t ino);
static inline ramp_node_t inode_node(fuse_ino_t ino)
{
	return (ramp_node_t)(ino - INODE_NODE);
}
static inline fuse_ino_t inode_of_node(ramp_node_t node)
{
	return INODE_NODE + node;
}
/* Returns the name of one of .ramp's files; NULL: it is none. */
const char *inode_ramp_file_name(fuse_ino_t ino);

/* Fills in the attributes. -ENOENT: no inode has that number (any more). */
int inode_attr(struct mount *m, fuse_ino_t ino, struct stat *st);
/* Fills in the answer to a lookup. */
int inode_entry(struct mount *m, fuse_ino_t ino, struct fuse_entry_param *e);
/* Looks a name up. -ENOENT; -ENAMETOOLONG. */
int inode_lookup(struct mount *m, fuse_ino_t parent, const char *name, fuse_ino_t *ino);

/*
 * Finds the segment's struct, with a reference, where this node serves it; its gate may still say
 * EREMOTE or EAGAIN. A row of ours that has no file yet (the daemon was killed between the commit
 * and the file) gets one. -EAGAIN: not before this node has caught up (mount.caught_up). -EREMOTE:
 * another node has it. -EIO: its bytes are lost or damaged. -ENOENT.
 */
int inode_segment(struct mount *m, ramp_segment_t id, struct seg **seg);
/* The same for a row that the caller's own command has made, which is no old copy. *doomed: there
   was no room, memory or descriptor for the file, and no request makes it until inode_taken_back;
   the caller unlinks the name. */
int inode_segment_made(struct mount *m, ramp_segment_t id, struct seg **seg, bool *doomed);
void inode_taken_back(struct mount *m, ramp_segment_t id);
/* Returns 0 if the segment may be opened, or the errors of inode_segment; 0 for another node's. */
int inode_openable(struct mount *m, ramp_segment_t id);
/* Returns true when this node has the segment's bytes and may serve them. */
bool inode_is_local(struct seg *seg);

/* Copy owner and mode between a row and the attributes beside the bytes (seg_note_owner,
   seg_owner). */
void inode_note_owner(struct seg *seg, const struct segment_row *row);
void inode_read_owner(struct seg *seg, struct segment_row *row);

#endif
