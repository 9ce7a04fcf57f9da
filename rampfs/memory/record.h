/*
 * The ownership record: what stands beside a segment's bytes, lives and dies with them, and alone
 * decides who may serve (DESIGN, "Who may serve a segment").
 *
 *   at the source:  (none) --create--> OWNED --give--> GIVEN --revert--> OWNED
 *                                                      GIVEN --(free)--> (none)
 *   at the target:  (none) --take--> TAKEN --settle--> OWNED
 *                                    TAKEN --(reverted by proof, free)--> (none)
 *
 * Two slots in ID.state, each with a sequence number and a CRC; the newer whole one counts, so a
 * daemon killed in the middle of a change leaves the old record or the new one. No msync: the
 * store dies with the machine, and so does the record.
 *
 * record_change is the one door: it checks the step against the drawing, writes, and logs both
 * names. Thread-safety: one changer a segment at a time (the control loop and its workers); readers
 * any thread.
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
	uint64_t epoch;	       /* OWNED: the row's when it became so; GIVEN, TAKEN: e, the
				  prepare's */
	struct ramp_attempt k; /* GIVEN, TAKEN; OWNED after a settle: the k it came by, else 0 */
	ramp_node_t peer;      /* GIVEN: the target; TAKEN: the source */
	ramp_incarnation_t peer_inc; /* of that peer */
	bool unchanged;		     /* GIVEN: the list in CONNECT still held at the freeze */
	bool demand_only;	     /* GIVEN, TAKEN: no prefetch */
	uint64_t size;		     /* GIVEN, TAKEN: bytes at the freeze */
};

/* A copy of the record, whole at all times. */
void record_get(struct seg *seg, struct record *record);
/* Replaces it; -EINVAL (and nothing changed) where the drawing has no such step. */
int record_change(struct seg *seg, const struct record *record, struct ramp_err *err);
const char *record_kind_name(enum record_kind kind);
/* OWNED or TAKEN: this node may read and write. */
bool record_serves(const struct record *record);

#endif
