/*
 * A node as far as rampfs/programs sees it: a store, one voter's metadata, a control loop on a
 * thread, and a pager that fills REMOTE pages with a pattern.
 */
#ifndef RAMP_PROGRAMS_WORLD_H
#define RAMP_PROGRAMS_WORLD_H

#include "memory_fixture.h"
#include "programs/programs.h"
#include "programs_prog.h"

#define MIB	   (UINT64_C(1) << 20)
#define SEG_BYTES  (4 * MIB)
#define FILLED	   UINT64_C(0xfeedfacecafef00d) /* of a page that the pager has pulled */
#define BLOCKED_MS 100	 /* an access that lasts longer is taken for blocked */
#define REVOKE_MS  20000 /* of a revoke whose bound is not tested */
#define ANSWER_MS  20000 /* an answer that takes longer never comes */

struct world {
	struct store *store;
	struct meta *meta;
	struct loop *loop;
	struct programs *programs;
	char socket[300], journal[300];
	int listen_fd;
	programs_punch *punch; /* for the next world_programs_start */
	struct programs_tools tools;
	uint32_t user_sessions, token_ms, connect_ms;
	_Atomic int no_pager; /* errno with which the pager refuses a client; 0: it takes it */
	_Atomic bool deaf;    /* the pager counts page faults, and answers none */
	_Atomic bool apart;   /* the pager says of each client that it was kept there */
};
extern struct world world;

/* Checked fixtures. */
void world_setup(void);
void world_teardown(void);
/* The daemon ends and another starts on the same listening socket. */
void world_programs_stop(void);
void world_programs_start(void);

/* A segment of SEG_BYTES, filled with `byte`, with a reference for the caller. */
struct seg *world_segment(const char *name, uint8_t byte);
/* Makes a step of its row, in a move to node b, which is nowhere but in the metadata. */
void world_step(struct seg *seg, enum meta_command_type type);
/* Makes the record GIVEN, and OWNED again. */
void world_give(struct seg *seg);
void world_revert(struct seg *seg);
/* Makes the segment in the store again under the same id: the record is TAKEN and [first, first +
   count) REMOTE, as after a move from another node. Takes the old reference over. */
struct seg *world_take(struct seg *seg, uint64_t first, uint64_t count);
/* Returns its file in the store. */
void world_path(struct seg *seg, char path[256]);

/* Starts a program with a session. */
void world_prog(struct prog *prog);
/* Attaches the whole segment with a valid token; returns the address. */
uint64_t world_attach(struct prog *prog, struct seg *seg, int access_mode);
struct prog_report world_try_attach(struct prog *prog, struct seg *seg, int access_mode,
				    uint32_t prot, uint64_t offset, uint64_t len);

/* A program with a session that has the whole segment mapped. world_detached gives both back. */
struct attached {
	struct seg *seg;
	struct prog prog;
	uint64_t addr;
};
struct attached world_attached(struct seg *seg, int access_mode);
void world_detached(struct attached *x);
/* Waits until the program has had n sessions. */
void world_wait_session(struct prog *prog, uint64_t n);
/* Gives an order that needs no more than an address. */
struct prog_report prog_at(struct prog *prog, enum prog_op what, uint64_t addr);
uint64_t prog_load(struct prog *prog, uint64_t addr);

void must(int rc, const struct ramp_err *err);
/* Calls programs_pulled, as often as it takes. */
void world_pulled(struct seg *seg);
/* Calls programs_may_move, again where an agent got no processor within its second. */
void world_may_move(struct seg *seg);
/* Does all that transfer/ does up to the window: afterwards no program can touch the segment. */
void world_freeze(struct seg *seg);
/* Returns the bytes of the whole file; the caller frees them. */
uint8_t *world_contents(struct seg *seg);

/* Returns how many page faults the pager has got. */
uint64_t world_faults(void);

/* Serves as main() of a test program whose tests all begin with a world of their own. */
int world_main(int argc, char **argv, const char *name, void (*add_tests)(TCase *tc));

#endif
