/*
 * The state machine: one committed entry after the other changes the tables.
 *
 * Deterministic: the result depends on the tables and the entry alone. It has no clock (times come
 * with the command), no randomness, and no I/O but the tables and the debug log. So equal logs make
 * equal tables on every node (journal_tables_sum).
 *
 *	              PREPARE                TAKEN                  SETTLED
 *	STABLE(S) ----------> MOVING(S, T) ---------> PULLING(T, S) ---------> STABLE(T)
 *	    ^ |                    |                       |   | SETTLED, marked unlinked
 *	    | | UNLINK             | ABORT                 |   v
 *	    | +------> ORPHAN <----|-- ABORT, marked ------+  ORPHAN or gone
 *	    |     FREED | ^ EXTENT, still open             |
 *	    |           v |        |     ABORT, T over     |
 *	    |        (gone)        v                       v
 *	    +---------------------------------------------+
 *
 *	(none) -> STABLE	[fsm_create]
 *	(none) -> ORPHAN	[fsm_extent] the row went with its name, the owner has the file open
 *	(none) -> STABLE, PULLING	[fsm_recovered] its commits were lost with the old cluster
 *	STABLE -> PULLING	[fsm_recovered] the same: prepare and taken were lost
 *	STABLE -> MOVING	[fsm_prepare]
 *	(STABLE stays so when it gives its extent back [fsm_unextent])
 *	MOVING -> PULLING	[fsm_taken]
 *	MOVING -> STABLE	[fsm_abort] of the source
 *	PULLING -> STABLE	[fsm_settled] of the target; [fsm_abort] of the source (T over)
 *	STABLE -> ORPHAN	[fsm_drop] unlinked; it has an extent, or one was asked for
 *	STABLE -> (none)	[fsm_drop] unlinked; no extent, nor one asked for, or owner over
 *	ORPHAN -> (none)	[fsm_freed]; [fsm_node_up, fsm_node_fence] its owner is over (R12)
 *
 * It fails only as a command's result (a negative errno, the same on every node), or when the
 * journal is dead (-EIO, which is never a command's result).
 */
#ifndef RAMP_META_FSM_H
#define RAMP_META_FSM_H

#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "journal.h"
#include "meta.h"
#include "raft.h"

/* The effect of an applied entry. */
struct fsm_result {
	bool command; /* false: no command: noop, configuration, or a stale copy */
	bool first;   /* false: a retry, answered from the table of results */
	struct meta_origin origin;
	struct meta_command_id cid;
	enum meta_command_type type;
	ramp_node_t subject; /* MEMBER_*: the node that is added, promoted, removed, comes again */
	struct meta_reply reply;
	ramp_segment_t changed[2]; /* segments whose row changed; 0: none */
	bool members;		   /* a node's row or the configuration changed */
};

/*
 * Applies the entry at `index` within the journal's turn; the caller writes the applied index.
 * Returns 0; -EPROTO: this program does not know such an entry, a newer one has made it, and the
 * caller must apply nothing more; -EIO: the journal is dead.
 */
int fsm_apply(struct journal *j, uint64_t index, const struct raft_entry *entry,
	      struct fsm_result *result);

#endif
