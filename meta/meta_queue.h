/*
 * The queue through which other threads reach the metadata thread.
 */
#ifndef RAMP_META_META_QUEUE_H
#define RAMP_META_META_QUEUE_H

#include "meta_sync.h"
#include "proposals.h"

enum item_type { ITEM_MESSAGE, ITEM_PROPOSAL, ITEM_SYNC, ITEM_PEER, ITEM_TRANSFER, ITEM_RELEASE };

/* Something for the meta thread. */
struct item {
	struct item *next;
	enum item_type type;
	ramp_node_t node;
	uint64_t instance; /* ITEM_MESSAGE: the sender's */
	bool up;
	struct meta_proposal *proposal;
	struct sync_read *sync;
	size_t len;
	uint8_t bytes[];
};

/* Waits for work, at most until the next tick; takes all of it. False: the thread is to end. */
bool queue_take(struct meta *meta, struct item **work);
/* What is left when the journal is dead or the thread ends. */
void item_refuse(struct item *item, int result);

#endif
