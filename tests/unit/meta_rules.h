/*
 * A journal with three nodes that are up (1, 2 and 3, with incarnations 11, 12, 13), and the state
 * machine's commands in short: each is applied in a turn of its own.
 */
#ifndef RAMP_TESTS_META_RULES_H
#define RAMP_TESTS_META_RULES_H

#include <check.h>

#include "meta/command.h"
#include "meta/fsm.h"
#include "meta/journal.h"

#define MIB   (UINT64_C(1) << 20)
#define ARENA UINT64_C(0x200000000000)
/* A multiple of 64 MiB, and of no larger power of two. */
#define ODD_ARENA (ARENA + 64 * MIB)

extern struct rules {
	char dir[160], path[200];
	struct journal *j;
	uint64_t index, unique;
	char fatal[300];
} t;

extern const struct ramp_attempt K, K2;

struct fsm_result apply_from(const struct meta_origin *origin, const struct meta_command *c);
struct meta_reply apply(struct meta_command c);
void apply_conf(const struct raft_conf *conf);
int node_up(ramp_node_t node, ramp_incarnation_t inc, uint64_t instance);
void rules_setup(void);
void rules_setup_small_arena(void);
void rules_setup_odd_arena(void);
void rules_teardown(void);
struct meta_reply create(ramp_node_t node, const char *name);
ramp_segment_t created(ramp_node_t node, const char *name);
int do_unlink(ramp_segment_t id, const char *name);
struct meta_reply rename_to(ramp_segment_t id, const char *from, const char *to, uint32_t flags);
struct meta_reply extent(ramp_segment_t id, uint64_t map_len);
struct meta_reply prepare(ramp_segment_t id, uint64_t epoch, struct ramp_attempt k, ramp_node_t src,
			  ramp_node_t dst, const char *name);
struct meta_reply step_k(enum meta_command_type type, ramp_segment_t id, uint64_t epoch,
			 struct ramp_attempt k);
int abort_k(ramp_segment_t id, uint64_t epoch, enum meta_proof proof, ramp_node_t node,
	    ramp_incarnation_t inc);
int fence(ramp_node_t node, ramp_incarnation_t inc);
struct segment_row row_of(ramp_segment_t id);
bool is_gone(ramp_segment_t id);
ramp_segment_t named(ramp_node_t node, const char *name);
ramp_segment_t moving(const char *name, const char *as, uint64_t *e);
ramp_segment_t pulling(const char *name, uint64_t *e);

#endif
