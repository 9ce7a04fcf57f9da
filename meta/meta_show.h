/*
 * What another node's tables hold (meta_wait_shown), and what others ask of this one's. All on the
 * meta thread.
 */
#ifndef RAMP_META_META_SHOW_H
#define RAMP_META_META_SHOW_H

#include <stdbool.h>
#include <stdint.h>

#include "meta.h"

/* A wait of this node for another's tables. */
struct show_wait {
	struct show_wait *next;
	ramp_node_t node;
	uint32_t timeout_ms;
	uint64_t ctx, deadline_ms;
	meta_done *done;
	void *arg;
};

#define SHOWS_MAX 64

struct shows {
	struct show_wait *waiting;
	uint64_t next_ctx;

	struct {
		uint64_t index; /* 0: this place is free */
		uint64_t ctx;	/* theirs */
		ramp_node_t from;
	} wanted[SHOWS_MAX]; /* by others, of this node's tables */
};

void shows_init(struct shows *all);
/* Takes a wait over, and asks its node. */
void shows_add(struct meta *meta, struct show_wait *wait);
/* Node `from` asks to be told when the tables here hold entry `index` (WIRE_SHOW). */
void shows_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx, uint64_t index);
/* Node `from` says that its tables hold it (WIRE_SHOWN). */
void shows_answer(struct meta *meta, ramp_node_t from, uint64_t ctx);
/* Answers others where the tables hold what they asked for, and ends late waits. */
void shows_tend(struct meta *meta);
/* Ends all waits with `result`. */
void shows_fail_all(struct meta *meta, int result);

#endif
