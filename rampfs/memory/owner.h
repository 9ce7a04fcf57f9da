/*
 * Mode, uid and gid of a segment as the metadata last had them, kept beside the bytes: an unlinked
 * file that is still open has no row, and fstat(2) must continue to report them.
 *
 * Thread-safety: any thread.
 */
#ifndef RAMP_MEMORY_OWNER_H
#define RAMP_MEMORY_OWNER_H

#include <stdint.h>

struct seg;

struct seg_owner {
	uint32_t mode, uid, gid; /* mode: permission bits */
};
void seg_note_owner(struct seg *seg, const struct seg_owner *owner);
struct seg_owner seg_owner(struct seg *seg); /* zeros where they were never noted */

#endif
