/*
 * ramp.alloc: an extended attribute of this node's directory that can only be set. Its value is a
 * segment to make, with its size and its addresses, in one commit (libramp's ramp_alloc).
 *
 *	size=BYTES extent=BYTES mode=OCTAL pages=auto|small|huge name=NAME
 *
 * in this order, with one space between them; the name is all that is left. extent=0: by rule.
 *
 * An attribute, since the kernel then checks as for a create that the caller may write to the directory,
 * through a mount that may be written to, and has the request sent again to the next daemon.
 */
#ifndef RAMP_OPS_ALLOC_H
#define RAMP_OPS_ALLOC_H

#include "libfuse.h"

#define ALLOC_ATTRIBUTE "ramp.alloc"

/* EEXIST: the name is taken; EINVAL: no such value; EREMOTE: another node's directory; ENOSPC: no
   free addresses; EDQUOT: the caller has too many; EOPNOTSUPP: not yet, since a member's program is
   older. */
void op_alloc(fuse_req_t req, fuse_ino_t node, const char *value, size_t size);

#endif
