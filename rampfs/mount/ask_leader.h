/*
 * Before a request is told that a name is not there, this node asks the leader once what has been
 * committed: its own tables may be some milliseconds behind those of the node that made the name.
 *
 * What needs no question: a name in this node's own directory. Such names are made here, come by a
 * move, which ends when this node's tables show it, or by a rename that another node asks for,
 * which waits for this node's tables, too (propose.h, metadata_change.home).
 *
 * Thread-safety: any thread.
 */
#ifndef RAMP_ASK_LEADER_H
#define RAMP_ASK_LEADER_H

#include "request.h"

/* The longest wait for the leader's answer. */
#define ASK_MS 200

/*
 * A request on the heap has found no name in the directory `dir`. Returns false where it is to be
 * told so: it has asked already, or asking is of no use (no leader is known, or the leader has not
 * answered for a second). Else parks the request, and calls look_again(r) on the park thread, once,
 * when this node's tables hold all that was committed before the question, or after ASK_MS.
 */
bool ask_leader(struct parked_request *r, fuse_ino_t dir,
		void (*look_again)(struct parked_request *r));
/* Returns whether a request that finds no name in `dir` would ask. */
bool ask_leader_helps(struct mount *m, fuse_ino_t dir);
/* Returns the number of questions so far. */
uint64_t ask_leader_count(struct mount *m);

#endif
