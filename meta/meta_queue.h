/*
 * The queue through which other threads reach the meta thread. Offers also the functions of meta.h
 * that only put an item into it.
 */
#ifndef RAMP_META_META_QUEUE_H
#define RAMP_META_META_QUEUE_H

#include "meta_show.h"
#include "meta_sync.h"
#include "proposals.h"

enum item_type {
	ITEM_MESSAGE,
	ITEM_PROPOSAL,
	ITEM_SYNC,
	ITEM_SHOW,
	ITEM_PEER,
	ITEM_TRANSFER,
	ITEM_RELEASE
};

/* A request for the meta thread. */
struct item {
	struct item *next;
	enum item_type type;
	ramp_node_t node;
	uint64_t instance; /* ITEM_MESSAGE: the sender's */
	bool up;
	struct meta_proposal *proposal; /* ITEM_PROPOSAL, owned */
	struct sync_read *sync;		/* ITEM_SYNC, owned */
	struct show_wait *show;		/* ITEM_SHOW, owned */
	size_t len;
	uint8_t bytes[]; /* ITEM_MESSAGE */
};

/* Blocks for items, at most until the next tick, and takes all of them. Returns false where the
   thread is to end. */
bool queue_take(struct meta *meta, struct item **work);
/* Answers an item that can't be carried out, since the journal is dead or the thread ends. The item
   itself remains the caller's. */
void item_refuse(struct item *item, int result);

#endif
