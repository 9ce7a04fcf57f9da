/*
 * The exports of a source, by key; and unexport, which waits until no byte of one can leave.
 *
 * The serve thread (tcp_serve.c) alone knows where bytes of an export are in the streams of
 * connections: it notes the position of the last one in `ends`, by the connection's slot.
 *
 * Thread-safety: exports_add, exports_remove and exports_remove_wait from any thread but the serve
 * thread; the rest is
 * the serve thread's.
 */
#ifndef RAMP_TCP_EXPORT_H
#define RAMP_TCP_EXPORT_H

#include <pthread.h>
#include <sys/queue.h>

#include "transport/transport.h"

#define EXPORT_SLOTS   256 /* connections */
#define EXPORT_BUCKETS 256

struct export
{
	LIST_ENTRY(export) link; /* protected by exports->lock */
	struct tp_key key;
	ramp_node_t reader;
	const struct tp_export_ops *ops;
	void *arg;
	/* The position of its last byte, sent or to be sent, in each connection's stream; 0: no
	   byte can still leave. Of the serve thread. */
	uint64_t ends[EXPORT_SLOTS];
};

/* One removal, on the stack of the thread that waits for it. */
struct unexport {
	TAILQ_ENTRY(unexport) link;
	struct export *export; /* NULL: the key is not exported */
	uint64_t deadline_ms;
	bool done;
};

struct exports {
	pthread_mutex_t lock;
	pthread_cond_t unexported;
	LIST_HEAD(, export) buckets[EXPORT_BUCKETS]; /* protected by lock */
	TAILQ_HEAD(, unexport) unexports;	     /* protected by lock */
};

void exports_init(struct exports *exports);
void exports_free(struct exports *exports);
/* Exports under a key. 0, -EEXIST: the key is in use; -ENOMEM. */
int exports_add(struct exports *exports, const struct tp_export *of, struct ramp_err *err);
/*
 * Takes an export out of the table, so that no new piece of it begins. `wake` makes the serve thread
 * call exports_attend; it is called with the lock held. Of a key that is not exported: nothing. The
 * caller calls exports_remove_wait with the same `unexport`, in any case.
 */
void exports_remove(struct exports *exports, const struct tp_key *key, struct unexport *unexport,
		    void (*wake)(void *arg), void *arg);
/* Blocks until exports_attend has found that nothing of it can leave any more, and frees it. */
void exports_remove_wait(struct exports *exports, struct unexport *unexport);
/* Returns the export of a key, or NULL: there is none, or its reader is another node. It stays until
   the next exports_attend. */
struct export *exports_find(struct exports *exports, const struct tp_key *key, ramp_node_t reader);
/* Forgets a slot's positions: they say nothing of the next connection that gets it. */
void exports_forget_slot(struct exports *exports, unsigned int slot);
/*
 * Asks `all_left` of each export that is being removed whether nothing of it can leave any more,
 * and ends the removal where that is so. `late`: its time is over, and connections that hold bytes
 * of it are to be cut. True: a removal still waits.
 */
bool exports_attend(struct exports *exports,
		    bool (*all_left)(void *arg, struct export *export, bool late), void *arg);

#endif
