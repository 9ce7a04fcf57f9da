/*
 * The ranges of the arena that this process has mapped, sorted and disjoint.
 *
 * They hold the program's own requests (address, protection, how often), which neither the daemon
 * nor /proc can know: a mapping that is gone keeps its entry, so that it can be put back in place.
 * The ranges are a plain array in static memory: nothing here allocates, sleeps or makes a system
 * call. Thread-safety: the caller's lock (table.h).
 */
#ifndef RAMP_RANGES_H
#define RAMP_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#define RANGES_MAX 32768 /* pages of it that are not used are not touched */

#define RANGE_PENDING (1u << 0) /* the agent has mapped it, its attach is not finished yet */
#define RANGE_GONE    (1u << 1) /* an empty file is in its place: a touch is SIGBUS */
#define RANGE_NOHUGE  (1u << 2) /* the program asked for MADV_NOHUGEPAGE */
/* Opened read-only: mapped MAP_PRIVATE, because userfaultfd takes no shared mapping that can never
   be written. It must stay unwritable, or private copies would appear. */
#define RANGE_READONLY (1u << 3)

struct range {
	uint64_t addr, len; /* bytes, page-aligned, len > 0 */
	uint64_t segment;
	uint64_t extent; /* the address of the segment's byte 0: the same on every node, for life */
	uint64_t end_max; /* the extent's end; 0: not known */
	uint32_t count;	  /* how often it was mapped; munmap takes one off */
	uint8_t prot;	  /* PROT_*: all that any of the mappings asked for */
	uint8_t session;  /* index of its daemon's agent (agent.h) */
	uint8_t flags;	  /* RANGE_* */
};

struct ranges {
	uint32_t n;
	struct range at[RANGES_MAX];
};

/* Returns the index of the first range that ends above `addr`; t->n where there is none. */
uint32_t ranges_first(const struct ranges *t, uint64_t addr);
/* Puts a range in. Returns 0; -EEXIST: something is there; -ENOMEM: the table is full. */
int ranges_add(struct ranges *t, const struct range *range);
/*
 * Cuts so that every range lies wholly inside or outside [start, end); those inside are
 * [*first, *last). Returns 0, or -ENOMEM: the table is full (nothing has changed).
 */
int ranges_isolate(struct ranges *t, uint64_t start, uint64_t end, uint32_t *first, uint32_t *last);
void ranges_remove(struct ranges *t, uint32_t index);
/* Removes all of one session. */
void ranges_remove_session(struct ranges *t, uint8_t session);
/* Finds the first part of [start, end) that no range covers. Returns true, and its bounds. */
bool ranges_gap(const struct ranges *t, uint64_t start, uint64_t end, uint64_t *gap_start,
		uint64_t *gap_end);
/* Returns any range of that segment of that session, or NULL. */
const struct range *ranges_of(const struct ranges *t, uint8_t session, uint64_t segment);
/* Joins neighbours that differ in nothing but their address. */
void ranges_join(struct ranges *t);
/* The same where [start, end), and nothing else, has changed since they were joined. */
void ranges_join_near(struct ranges *t, uint64_t start, uint64_t end);

#endif
