/*
 * The identities that cross floors and machines.
 */
#ifndef RAMP_IDS_H
#define RAMP_IDS_H

#include <stdbool.h>
#include <stdint.h>

#define RAMP_NAME_MAX	    255 /* bytes of a segment's name */
#define RAMP_NODE_NAME_MAX  63	/* bytes of a node's name */
#define RAMP_ADDRESS_MAX    255 /* bytes of HOST:PORT */
#define RAMP_PAGE_BYTES	    4096u
#define RAMP_HUGE_BYTES	    (2u << 20)
#define RAMP_EXTENT_MIN	    (UINT64_C(64) << 20)
#define RAMP_SEGMENT_ID_MIN 4096 /* smaller nodeids are directories and files of .ramp */

typedef uint32_t ramp_node_t;	     /* a member's number; 1.. in the order of cluster.conf; never
					reused; 0: none */
typedef uint64_t ramp_segment_t;     /* never reused; >= RAMP_SEGMENT_ID_MIN; 0: none */
typedef uint64_t ramp_incarnation_t; /* random, made with a store; never 0 */

/* One attempt at one migration: a random id from the source, a random ticket from the target. */
struct ramp_attempt {
	uint64_t source_id;
	uint64_t ticket;
};

static inline bool ramp_attempt_equal(struct ramp_attempt a, struct ramp_attempt b)
{
	return a.source_id == b.source_id && a.ticket == b.ticket;
}

/* Returns a random number that is not 0 (getrandom(2)); exits if there is none. */
uint64_t ramp_random64(void);

#endif
