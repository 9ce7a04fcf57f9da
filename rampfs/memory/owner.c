/*
 * Mode, uid and gid beside the bytes: an extended attribute of the segment's state file, which only
 * root sees. So the owner that each descriptor of the segment shows outlives the daemon, and needs no
 * room in the header.
 *
 * It is the state file's attribute, not the data file's: setting an attribute takes the file's lock,
 * which a program may hold (seg_hand_out). It is accessed by name: if no descriptor is to be had, a
 * segment at rest must not read as root's, nor be recorded as that.
 */
#include "owner.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/log.h"
#include "base/wire.h"
#include "seg_core.h"

#define OWNER_XATTR "trusted.ramp.owner"
#define OWNER_BYTES 12
#define PATH_BYTES  64

static void name_of(struct seg *seg, void (*file_name)(ramp_segment_t, char[32]),
		    char path[PATH_BYTES])
{
	char name[32];

	file_name(seg->id, name);
	snprintf(path, PATH_BYTES, "/proc/self/fd/%d/%s", seg->store->dir_fd, name);
}

static ssize_t owner_read(struct seg *seg, uint8_t buf[OWNER_BYTES])
{
	char path[PATH_BYTES];
	ssize_t n;

	name_of(seg, seg_state_name, path);
	n = getxattr(path, OWNER_XATTR, buf, OWNER_BYTES);
	if (n >= 0 || errno != ENODATA)
		return n;
	name_of(seg, seg_data_name, path); /* where earlier versions put it */
	return getxattr(path, OWNER_XATTR, buf, OWNER_BYTES);
}

static int owner_write(struct seg *seg, const struct seg_owner *owner)
{
	uint8_t buf[OWNER_BYTES];
	char path[PATH_BYTES];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u32(&w, owner->mode);
	wire_put_u32(&w, owner->uid);
	wire_put_u32(&w, owner->gid);
	name_of(seg, seg_state_name, path);
	return setxattr(path, OWNER_XATTR, buf, sizeof(buf), 0);
}

/* Reads it if it was not read before. False: it was never noted, or can't be read. store->owner_lock
   is held. */
static bool know(struct seg *seg)
{
	uint8_t buf[OWNER_BYTES];
	struct wire_r r;

	if (seg->owner_known)
		return true;
	if (owner_read(seg, buf) != OWNER_BYTES)
		return false;
	wire_r_init(&r, buf, sizeof(buf));
	seg->owner.mode = wire_get_u32(&r);
	seg->owner.uid = wire_get_u32(&r);
	seg->owner.gid = wire_get_u32(&r);
	seg->owner_known = true;
	return true;
}

static bool same(const struct seg_owner *a, const struct seg_owner *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid;
}

void seg_note_owner(struct seg *seg, const struct seg_owner *owner)
{
	pthread_mutex_lock(&seg->store->owner_lock);
	if (!know(seg) || !same(&seg->owner, owner)) {
		if (owner_write(seg, owner)) {
			log_debug("segment %" PRIu64 ": its owner is not recorded: %s", seg_id(seg),
				  strerror(errno));
		} else {
			seg->owner = *owner;
			seg->owner_known = true;
		}
	}
	pthread_mutex_unlock(&seg->store->owner_lock);
}

struct seg_owner seg_owner(struct seg *seg)
{
	struct seg_owner owner = {0};

	pthread_mutex_lock(&seg->store->owner_lock);
	if (know(seg))
		owner = seg->owner;
	pthread_mutex_unlock(&seg->store->owner_lock);
	return owner;
}
