/*
 * The bytes of the Raft core's messages, as nodes send them to each other.
 */
#ifndef RAMP_META_RAFT_WIRE_H
#define RAMP_META_RAFT_WIRE_H

#include <stddef.h>

#include "raft.h"

/* Bytes that raft_message_encode needs at most for m. */
size_t raft_message_size(const struct raft_message *m);
/* Returns the length, 0 where cap is too small. from and to are not on the wire. */
size_t raft_message_encode(const struct raft_message *m, void *buf, size_t cap);
/* 0 or -EPROTO. m->bytes points into buf; release m afterwards. */
int raft_message_decode(const void *buf, size_t len, struct raft_message *m);

#endif
