/*
 * A queue pair of the reader: READs of a source's memory, and their completions.
 *
 * Reads of at most QUEUE_SLOT_BYTES, on a connection of class demand, land in a buffer that is
 * registered once: no page fault waits for a registration. All others land in place, which is
 * registered for as long as the read lasts.
 *
 * Thread-safety: one thread at a time; queue_connect may be another one than the later user.
 */
#ifndef RAMP_VERBS_QUEUE_H
#define RAMP_VERBS_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/hmac.h"
#include "message.h"
#include "transport/transport.h"

#define QUEUE_SLOT_BYTES (64u << 10)

struct queue;

struct queue_config {
	enum tp_class class;
	ramp_node_t self;
	uint64_t life, counter;
	uint8_t key[HMAC_BYTES];      /* of the control connection, for the proofs */
	struct sockaddr_storage from; /* this node's address, port 0 */
	struct message_at to;
	const atomic_bool *abandoned; /* set: the result is of no use any more */
};

/* Connects, within 5 s unless the kernel itself waits longer (iWARP). Blocks. 0, or a negative errno. */
int queue_connect(const struct queue_config *config, struct queue **out, struct ramp_err *err);
/* Returns the life that the source has proved. */
uint64_t queue_life(const struct queue *queue);
/* Ends it. When this returns nothing lands any more. */
void queue_close(struct queue *queue);
/* True: this process has queue pairs of its own making, or is about to. Any thread. */
bool queue_any(void);

/* Returns two descriptors that are readable when there is something to do. */
void queue_fds(const struct queue *queue, int fds[2]);
/* True: such a read lands in its buffer. */
bool queue_has_slot(const struct queue *queue, size_t len);
/* Posts a READ under a number below TP_QUEUE_MAX, not in use. 0; or a negative errno: nothing has begun. */
int queue_post(struct queue *queue, unsigned slot, const struct message_region *from,
	       uint64_t offset, void *dst, uint32_t len);
/* Gives the numbers of READs that have completed well, at most `max`, and stores the bytes of those
   that landed in the buffer. Returns how many; or a negative errno, from then on at each call: the
   queue pair is lost, and `err` says why. -EFAULT: there was no room for the bytes of a READ. */
int queue_reap(struct queue *queue, unsigned *slots, int max, struct ramp_err *err);
/* True: something is left that no descriptor tells of. */
bool queue_has_more(const struct queue *queue);

#endif
