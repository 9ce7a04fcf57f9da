/*
 * A segment that is made with its size and its addresses in one commit: rampfs/mount/ops_alloc.h says
 * how the daemon is asked.
 */
#include "alloc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "base/page.h"
#include "error.h"

#define ALLOC_MIB(bytes) ((bytes) >> 20)

static uint64_t whole_pages(uint64_t bytes)
{
	return (bytes + RAMP_PAGE_BYTES - 1) & ~(uint64_t)(RAMP_PAGE_BYTES - 1);
}

/* Returns the least extent that `bytes` fit into. */
static uint64_t least_extent(uint64_t bytes)
{
	uint64_t rounded = RAMP_EXTENT_MIN;

	while (rounded < bytes)
		rounded *= 2;
	return rounded;
}

uint64_t alloc_extent(const struct ramp_alloc *what)
{
	return what->extent ? least_extent(what->extent) : 0;
}

int alloc_check(const struct ramp_cluster *ramp, int dir, const struct ramp_alloc *what)
{
	uint64_t extent = least_extent(what->extent > what->size ? what->extent : what->size);
	uint64_t capacity;
	struct statvfs space;
	char why[160];

	if (extent > ramp->info.arena_len) {
		snprintf(why, sizeof(why),
			 "it needs %" PRIu64
			 " MiB of addresses, and the cluster's arena has %" PRIu64 " MiB",
			 ALLOC_MIB(extent), ALLOC_MIB(ramp->info.arena_len));
		return error_set(ENOSPC, what->name, why);
	}
	if (fstatvfs(dir, &space))
		return error_set(errno, what->name, "the node's capacity can't be read");
	capacity = (uint64_t)space.f_blocks * space.f_frsize;
	if (what->size > capacity) {
		snprintf(why, sizeof(why),
			 "its %" PRIu64 " MiB are more than the %" PRIu64 " MiB that node %s has",
			 ALLOC_MIB(what->size), ALLOC_MIB(capacity), ramp->node);
		return error_set(ENOSPC, what->name, why);
	}
	return 0;
}

bool alloc_has_mode(const struct ramp_alloc *what)
{
	return !what->mode || (what->mode & 0600) == 0600;
}

int alloc_at_once(int dir, const struct ramp_alloc *what)
{
	char value[RAMP_API_NAME_MAX + 128];
	int len = snprintf(value, sizeof(value),
			   "size=%" PRIu64 " extent=%" PRIu64 " mode=%o pages=%s name=%s",
			   whole_pages(what->size), alloc_extent(what),
			   what->mode && alloc_has_mode(what) ? what->mode & 0777 : 0600,
			   what->no_huge ? "small" : "auto", what->name);

	return fsetxattr(dir, "ramp.alloc", value, (size_t)len, 0) ? -errno : 0;
}

int alloc_error(const struct ramp_alloc *what, int rc)
{
	const char *why = NULL;

	if (rc == -EDQUOT)
		why = "the user would have more addresses than arena-user-max allows";
	else if (rc == -ENOSPC)
		why = "the cluster's arena has no free range that is large enough, or the node no "
		      "room for another segment";
	else if (rc == -EROFS)
		why = "the cluster has no quorum, or the mount is read-only";
	else if (rc == -ETIMEDOUT)
		why = "the cluster has not answered; it may still be made";
	return error_set(-rc, what->name, why);
}
