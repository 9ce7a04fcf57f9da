/*
 * The bytes of the Raft core's messages, as nodes send them to each other.
 */
#ifndef RAMP_META_RAFT_WIRE_H
#define RAMP_META_RAFT_WIRE_H

#include <stddef.h>

#include "raft.h"

/* Returns the most bytes that raft_message_encode needs for m. */
size_t raft_message_size(const struct raft_message *m);
/* Encodes all of m but from and to. Returns the length, 0 where cap is too small. */
size_t raft_message_encode(const struct raft_message *m, void *buf, size_t cap);
/* Decodes a message. Returns 0, -EPROTO or -ENOMEM. m->bytes points into buf; release m afterwards
   (raft_message_release). */
int raft_message_decode(const void *buf, size_t len, struct raft_message *m);

#endif
