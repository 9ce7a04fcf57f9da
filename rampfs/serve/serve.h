/*
 * Serving pages at the source.
 *
 * A grant exports one frozen or GIVEN segment under the key of one attempt. Reads of it are answered
 * from the segment's file by the transport's serve thread.
 *
 * Thread-safety: any thread, except where stated.
 */
#ifndef RAMP_SERVE_H
#define RAMP_SERVE_H

#include "base/err.h"
#include "base/trace.h"
#include "memory/store.h"
#include "transport/transport.h"

struct serve;

/* `tp` outlives it. */
int serve_open(struct tp *tp, struct serve **out, struct ramp_err *err);
/* Revokes all grants that are left, and frees. No other call may be under way. */
void serve_close(struct serve *serve);

/* Grants `key` for a frozen or GIVEN segment to one node. 0 also where that key is granted already.
   Blocks shortly. */
int serve_grant(struct serve *serve, struct seg *seg, const struct tp_key *key, ramp_node_t reader,
		struct ramp_err *err);
/* Returns when nothing more is sent under `key`. Blocks shortly. */
void serve_revoke(struct serve *serve, const struct tp_key *key);
/* Notes in `trace` how the first single pages of a grant are served. Called before the first page is
   asked for. */
void serve_trace(struct serve *serve, const struct tp_key *key, struct trace *trace);

#endif
