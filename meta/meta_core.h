/*
 * The metadata thread's ground: its clock, its core, its messages, and what is known of it.
 */
#ifndef RAMP_META_META_CORE_H
#define RAMP_META_META_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta.h"
#include "replica.h"

#define META_PATIENCE_MS      5000 /* then EROFS or ETIMEDOUT */
#define META_RETRY_LOCAL_MS   20
#define META_RETRY_FORWARD_MS 250

/* What travels between metas: the first byte of every message. */
enum meta_wire {
	WIRE_RAFT = 1,	  /* raft_message_encode */
	WIRE_FORWARD,	  /* command_encode: the leader may propose it */
	WIRE_READ,	  /* u64 ctx: a ReadIndex for the sender */
	WIRE_READ_ANSWER, /* u64 ctx, u64 index */
	WIRE_ADMISSION,	  /* u8 flags, u64 instance: admission.c */
	WIRE_LIFE,	  /* u64 instance, life, lowest: the receiver's, as the tables know it */
	WIRE_ACKED,	  /* u64 instance of the receiver, u64 index: admission.c */
	WIRE_MEMBERS,	  /* of each {u32 node, str name, str address}: admission.c */
};

uint64_t meta_clock_ms(void);

uint64_t meta_now_ms(const struct meta *meta); /* of this turn */
/* The journal's state as it was when it was opened: ids, arena, life. */
const struct journal_state *meta_opened(const struct meta *meta);
const struct raft *meta_raft(const struct meta *meta);
struct journal *meta_journal(const struct meta *meta);
const char *meta_journal_path(const struct meta *meta); /* any thread */
struct proposals *meta_proposals(struct meta *meta);
struct syncs *meta_syncs(struct meta *meta);
struct admission *meta_admission(struct meta *meta);
struct amnesia *meta_amnesia(struct meta *meta);
struct meta_readers *meta_readers(struct meta *meta);

/* Steps the core now; the turn that is under way carries out what follows. */
int meta_step(struct meta *meta, struct raft_event *event);
/* This node can't go on: config.fatal. */
void meta_fatal(struct meta *meta, const char *text);
void meta_send_small(struct meta *meta, ramp_node_t to, enum meta_wire kind, uint64_t a,
		     uint64_t b);
/* True where nothing was heard of a leader for META_PATIENCE_MS. */
bool meta_forsaken(struct meta *meta);

void meta_send(struct meta *meta, ramp_node_t to, const void *bytes, size_t len);
void meta_heard_of(struct meta *meta, const struct node_row *row);
/* A reader can't go on: config.fatal, and -EIO where that returns. Any thread. */
int meta_unreadable(struct meta *meta, const char *text);
void meta_publish(struct meta *meta, uint64_t known_ms);

#endif
