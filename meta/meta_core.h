/*
 * The meta thread's ground: its clock, its core, its messages, and what other threads may know.
 *
 * All on the meta thread, unless noted otherwise.
 */
#ifndef RAMP_META_META_CORE_H
#define RAMP_META_META_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta.h"
#include "replica.h"

#define META_PATIENCE_MS      5000 /* an open request ends then with EROFS or ETIMEDOUT */
#define META_RETRY_LOCAL_MS   20   /* until a request is tried again on this node ... */
#define META_RETRY_FORWARD_MS 250  /* ... and until it is sent again to another leader */

/* The first byte of every message between the metas of two nodes. */
enum meta_wire {
	WIRE_RAFT = 1,	  /* raft_message_encode */
	WIRE_FORWARD,	  /* command_encode: the leader may propose it */
	WIRE_READ,	  /* u64 ctx: a ReadIndex for the sender */
	WIRE_READ_ANSWER, /* u64 ctx, u64 index */
	WIRE_ADMISSION,	  /* u64 flags, u64 instance: admission.c */
	WIRE_LIFE,	  /* u64 instance, life, lowest: the receiver's, as the tables know it */
	WIRE_ACKED,	  /* u64 instance of the receiver, u64 index: amnesia.c */
	WIRE_MEMBERS,	  /* of each {u32 node, str name, str address}: admission.c */
	WIRE_SHOW,	  /* u64 ctx, u64 index: tell me when your tables hold it (meta_show.c) */
	WIRE_SHOWN,	  /* u64 ctx, u64 0 */
	WIRE_LEVEL,	  /* u64 level, u64 0: this program knows levels up to it (levels.c) */
};

uint64_t meta_clock_ms(void); /* any thread */

/* ---- the thread's state -------------------------------------------------------------------- */

uint64_t meta_now_ms(const struct meta *meta); /* of this turn */
/* Returns the journal's state as of its opening: ids, arena, life. Any thread. */
const struct journal_state *meta_opened(const struct meta *meta);
const struct raft *meta_raft(const struct meta *meta);
struct journal *meta_journal(const struct meta *meta);
const char *meta_journal_path(const struct meta *meta); /* any thread */
/* Each returns the state of the file of that name. */
struct proposals *meta_proposals(struct meta *meta);
struct syncs *meta_syncs(struct meta *meta);
struct shows *meta_shows(struct meta *meta);
struct admission *meta_admission(struct meta *meta);
struct amnesia *meta_amnesia(struct meta *meta);
struct levels *meta_levels(struct meta *meta);
struct meta_readers *meta_readers(struct meta *meta); /* any thread */

/* ---- steps and messages -------------------------------------------------------------------- */

/* Steps the core now; the turn that is under way carries out the actions. */
int meta_step(struct meta *meta, struct raft_event *event);
/* Returns true where no leader was known for META_PATIENCE_MS. */
bool meta_forsaken(struct meta *meta);
/* Returns true while meta_awaits_admission is, and was for the last `for_ms`. Any thread. */
bool meta_awaits_admission_for(struct meta *meta, uint64_t for_ms);
/* Sends a message through config.send. */
void meta_send(struct meta *meta, ramp_node_t to, const void *bytes, size_t len);
/* Sends a message of two numbers. */
void meta_send_small(struct meta *meta, ramp_node_t to, enum meta_wire kind, uint64_t a,
		     uint64_t b);
/* Reports a member that the tables do not have (config.heard_of). */
void meta_heard_of(struct meta *meta, const struct node_row *row);
/* Ends this node's work: config.fatal. */
void meta_fatal(struct meta *meta, const char *text);
/* Ends this node's work for a reader of the tables. Returns -EIO where config.fatal returns. Any
   thread. */
int meta_unreadable(struct meta *meta, const char *text);

/* ---- what other threads may know ----------------------------------------------------------- */

/* Publishes the status of this turn. `known_ms`: when the core last looked at its clock, which was
   before the turns; those may take long. */
void meta_publish(struct meta *meta, uint64_t known_ms);

#endif
