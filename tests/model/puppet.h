/*
 * A node made of the real Raft core and a disk of a few variables, driven by hand: for the scripted
 * cases and the explorer. The state machine is left out: an entry's command is a number.
 *
 *	puppet_step()	any number of events
 *	puppet_early()	FLUSH, then the early messages
 *	puppet_commit()	the transaction: the disk is changed as the actions ask
 *	puppet_finish()	the other messages, reads, dumps; PERSISTED. True: another turn is due
 *	puppet_crash()	instead of any of these: the core is made again from the disk
 *
 * A broken assumption (raft_check, actions.failed, memory) calls puppet_wrong, which the program
 * that uses this file defines; it does not return.
 */
#ifndef RAMP_PUPPET_H
#define RAMP_PUPPET_H

#include <stdbool.h>
#include <stdint.h>

#include "meta/raft.h"

#define PUPPET_LOG 32 /* indexes that a disk holds */

/* The durable state. */
struct puppet_disk {
	uint64_t term;
	ramp_node_t vote;
	bool confirmed;
	uint64_t snap_index, snap_term, snap_conf_index;
	struct raft_data *snap_conf;
	uint64_t applied, last;
	struct raft_entry log[PUPPET_LOG]; /* snap_index + 1 .. last */
};

struct puppet {
	struct raft_options opt;
	struct puppet_disk disk;
	struct raft raft;
	struct raft_actions actions;
};

typedef void puppet_send(void *arg, const struct raft_message *m);
typedef void puppet_read(void *arg, const struct raft_read *read);
struct puppet_hooks {
	puppet_send *send;
	puppet_read *read;
	void *arg;
};

_Noreturn void puppet_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Makes a node as mkfs does: with the founders' configuration at index 1, term 1; NULL: a
   joiner. */
void puppet_format(struct puppet *p, const struct raft_options *opt, const struct raft_conf *conf,
		   bool confirmed);
void puppet_boot(struct puppet *p); /* makes the core from the disk */
void puppet_free(struct puppet *p);
void puppet_clone(struct puppet *to, const struct puppet *from); /* `to` is not initialised */

int puppet_step(struct puppet *p, const struct raft_event *ev);
void puppet_early(struct puppet *p, const struct puppet_hooks *h);
void puppet_commit(struct puppet *p);
bool puppet_finish(struct puppet *p, const struct puppet_hooks *h);
void puppet_crash(struct puppet *p);
/* Makes turns (early, commit, finish) until none is due. */
void puppet_turns(struct puppet *p, const struct puppet_hooks *h);

#endif
