/*
 * A segment's new size.
 */
#include "truncate.h"

#include <errno.h>
#include <unistd.h>

#include "base/page.h"
#include "cut.h"
#include "inode.h"
#include "memory/stores.h"
#include "offload.h"

static int cut_to(struct mount *m, struct seg *seg, uint64_t size)
{
	uint64_t old = seg_size(seg), end;
	struct cut cut = {0};
	int rc = 0;

	if (size < old) {
		end = page_up(old);
		rc = cut_begin(&cut, m, seg, size, end - size);
		if (rc)
			return rc;
	}
	seg_note_write(seg);
	if (ftruncate(seg_fd(seg), (off_t)size))
		rc = -errno;
	if (size < old) {
		seg_layout_cut(seg);
		stores_note(seg, size, end - size);
	}
	cut_end(&cut, rc ? 0 : cut.len);
	return rc;
}

static int cut_inside(struct parked_request *r, struct seg *seg, uint64_t size)
{
	int how = offload_begin(r, seg, false), rc;

	if (how < 0)
		return how;
	rc = cut_to(r->mount, seg, size);
	offload_end(seg, how);
	return rc;
}

int truncate_segment(struct parked_request *r, ramp_segment_t id, uint64_t size, bool *gate)
{
	struct seg *seg;
	int rc = inode_segment(r->mount, id, &seg);

	*gate = rc == -EAGAIN;
	if (rc)
		return rc;
	rc = seg_enter_to_store(seg);
	if (rc) {
		*gate = rc == -EAGAIN;
	} else {
		rc = cut_inside(r, seg, size);
		seg_leave(seg);
	}
	seg_put(seg);
	return rc;
}
