/*
 * The source's memory that readers may read by RDMA: of each export the populated runs, mapped a
 * second time and registered in chunks.
 *
 * A reader asks for the regions of a key (REGIONS_WANTED) when it has taken the segment, or, in mode
 * copy, when the source has frozen it: from then on no page of the segment changes here, and none is
 * cut, until the export ends. So that is when registering begins: a registration keeps the pages
 * that were there when it was made, and a hole punched and written again before would be read with
 * its old bytes. A reader that asks before, in the rounds of a pre-copy, is told that there are none, and may ask
 * again.
 *
 * Thread-safety: any thread, except where stated.
 */
#ifndef RAMP_VERBS_REGIONS_H
#define RAMP_VERBS_REGIONS_H

#include <stdint.h>

#include "base/err.h"
#include "device.h"
#include "message.h"
#include "transport/transport.h"

struct regions;
struct peers;

int regions_open(struct peers *peers, uint64_t life, struct regions **out, struct ramp_err *err);
/* Every export has been removed. */
void regions_close(struct regions *regions);
/* Sets the device; NULL: there is none (any more). Returns when nothing is registered in the one
   before. The verbs thread. */
void regions_set_device(struct regions *regions, struct device *device);

/* 0, or -ENOMEM: then the export goes without. */
int regions_add(struct regions *regions, const struct tp_export *export);
/* Takes every registration of the export back. When it returns no READ of that memory completes well
   any more: this is the revocation. Blocks. */
void regions_remove(struct regions *regions, const struct tp_key *key);
/* Sends a reader the regions that are there, begins to register, and sends the others as they become
   ready. Never blocks. */
void regions_wanted(struct regions *regions, ramp_node_t from, const struct message_wanted *wanted);

/* The reader has all bytes before done->upto: takes the registrations of those back. Never blocks. */
void regions_done(struct regions *regions, ramp_node_t from, const struct message_done *done);

/* Adds the figures of a node as a reader. */
void regions_count(struct regions *regions, struct tp_peer *peer);

#endif
