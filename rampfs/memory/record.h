/*
 * The ownership record. It lies beside a segment's bytes, lives and dies with them, and alone
 * decides which node may serve the segment (contrib/doc/design.md, "Ownership records").
 *
 *   at the source:  (none) --create--> OWNED --give--> GIVEN --revert--> OWNED
 *                                                      GIVEN --(free)--> (none)
 *   at the target:  (none) --take--> TAKEN --settle--> OWNED
 *                                    TAKEN --(reverted by proof, free)--> (none)
 *
 * There are two slots in ID.state, each with a sequence number and a CRC; the newer whole one
 * counts, so a daemon killed in the middle of a change leaves the old record or the new one. No
 * msync: the store dies with the machine, and so does the record.
 *
 * record_change is the one door: it checks the step against the drawing, writes the record, and
 * logs both names. Thread-safety: one thread at a time changes a segment's record (the control loop
 * or a worker of it); any thread reads it.
 */
#ifndef RAMP_RECORD_H
#define RAMP_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

struct seg;

enum record_kind { RECORD_NONE, RECORD_OWNED, RECORD_GIVEN, RECORD_TAKEN };

struct record {
	enum record_kind kind;
	uint64_t epoch;	       /* OWNED: the row's when it became OWNED; GIVEN, TAKEN: e, of the
				  prepare */
	struct ramp_attempt k; /* GIVEN, TAKEN; OWNED after a settle: the k it came by, else 0 */
	ramp_node_t peer;      /* GIVEN: the target; TAKEN: the source */
	ramp_incarnation_t peer_inc; /* of that peer */
	bool unchanged;		     /* GIVEN: the list in CONNECT still held at the freeze */
	bool demand_only;	     /* GIVEN, TAKEN: no prefetch */
	uint64_t size;		     /* GIVEN, TAKEN: bytes at the freeze */
};

/* Copies the record, which is whole at all times. */
void record_get(struct seg *seg, struct record *record);
/* Replaces it; -EINVAL (and nothing changed) where the drawing has no such step. */
int record_change(struct seg *seg, const struct record *record, struct ramp_err *err);
const char *record_kind_name(enum record_kind kind);
/* OWNED or TAKEN: this node may read and write. */
bool record_serves(const struct record *record);

/* ---- for this folder alone ----------------------------------------------------------------- */

void record_write_first(struct seg *seg, const struct record *record);
/* Reads the newer whole slot into seg->record; -EIO: neither is whole. */
int record_load(struct seg *seg);

#endif
