/*
 * The wish is an extended attribute: the daemon of any node has the cluster note it. setxattr(2) fails with a number
 * alone, of which words are made here.
 */
#include "set_prefill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/ids.h"
#include "base/visible.h"

const char *set_prefill(const char *file, const char *node, uint64_t limit_bytes_s)
{
	static char text[5 * RAMP_NODE_NAME_MAX];
	char value[RAMP_NODE_NAME_MAX + 32], name[4 * RAMP_NODE_NAME_MAX + 1];
	struct stat st;

	if (limit_bytes_s && strcmp(node, "none") != 0)
		snprintf(value, sizeof(value), "%s %" PRIu64, node, limit_bytes_s);
	else
		snprintf(value, sizeof(value), "%s", node);
	if (!lsetxattr(file, "user.ramp.prefill", value, strlen(value), 0))
		return NULL;
	switch (errno) {
	case ENOENT:
		if (lstat(file, &st))
			return strerror(ENOENT);
		visible(name, sizeof(name), node);
		snprintf(text, sizeof(text), "no such node: %s", name);
		return text;
	case EPERM:
		return "only its owner and root may have it kept near another node";
	case EOPNOTSUPP:
		return "not until every member runs a rampfs that knows prefills";
	case EROFS:
		return "no quorum: the cluster can't note it now";
	case EOVERFLOW:
		return "the node's number is too large to be kept near";
	case EINVAL:
		return "not a node's name and a limit of 1M a second or more";
	case EBUSY:
		return "it is on the move";
	default:
		return strerror(errno);
	}
}
