/*
 * Connecting a queue pair, in a thread of its own: the kernel may block it for as long as a TCP
 * connection takes to fail (iWARP).
 */
#ifndef RAMP_VERBS_QUEUE_DIAL_H
#define RAMP_VERBS_QUEUE_DIAL_H

#include "core.h"
#include "queue.h"

struct queue_dial;

/* Begins to connect to a node that has told where. NULL: not now (it has not told, or is not up). */
struct queue_dial *queue_dial_start(struct verbs *verbs, struct verbs_node *node,
				    enum tp_class class);
/* Returns a descriptor that is readable when it is over. */
int queue_dial_fd(const struct queue_dial *dial);
bool queue_dial_is_over(const struct queue_dial *dial);
/* Of one that is over: 0, *out is the caller's; or a negative errno, and `err` says why. Frees the dial. */
int queue_dial_take(struct queue_dial *dial, struct queue **out, struct ramp_err *err);
/* The result is of no use any more. Never blocks. */
void queue_dial_abandon(struct queue_dial *dial);
/* Begins to connect the queue pairs of a node before a connection needs them, unless they are there. */
void queue_dial_ahead(struct verbs *verbs, struct verbs_node *node);
/* Takes one of those. NULL: there is none. *soon: one is being connected. */
struct queue *queue_dial_ready(struct verbs *verbs, struct verbs_node *node, enum tp_class class,
			       bool *soon);
/* Ends those that were made before that time and not taken. */
void queue_dial_expire(struct verbs *verbs, uint64_t before_ms);
/* Waits until no thread connects any more, for some seconds. False: some still do. */
bool queue_dials_end(struct verbs *verbs);

#endif
