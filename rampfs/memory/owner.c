/*
 * Mode, uid and gid beside the bytes: an extended attribute of the segment's file, which only root
 * sees. What every descriptor of the file shows outlives the daemon, and needs no room in ID.state.
 */
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "log.h"
#include "store.h"
#include "wire.h"

#define OWNER_XATTR "trusted.ramp.owner"
#define OWNER_BYTES 12

void seg_note_owner(struct seg *seg, const struct seg_owner *owner)
{
	uint8_t buf[OWNER_BYTES], old[OWNER_BYTES];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u32(&w, owner->mode);
	wire_put_u32(&w, owner->uid);
	wire_put_u32(&w, owner->gid);
	if (fgetxattr(seg_fd(seg), OWNER_XATTR, old, sizeof(old)) == OWNER_BYTES &&
	    memcmp(old, buf, OWNER_BYTES) == 0)
		return;
	if (fsetxattr(seg_fd(seg), OWNER_XATTR, buf, sizeof(buf), 0))
		log_debug("segment %llu: owner is not noted: %s", (unsigned long long)seg_id(seg),
			  strerror(errno));
}

struct seg_owner seg_owner(struct seg *seg)
{
	struct seg_owner owner;
	uint8_t buf[OWNER_BYTES];
	struct wire_r r;
	ssize_t n = fgetxattr(seg_fd(seg), OWNER_XATTR, buf, sizeof(buf));

	wire_r_init(&r, buf, n > 0 ? (size_t)n : 0);
	owner.mode = wire_get_u32(&r);
	owner.uid = wire_get_u32(&r);
	owner.gid = wire_get_u32(&r);
	return owner;
}
