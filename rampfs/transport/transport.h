/*
 * Remote memory: memory that a source exports under a key, and one-sided reads of it.
 *
 * A target opens two connections to a source, one for demand and one for prefetch (the RAMP paper
 * states as its flaw that it shared one), posts reads and reaps completions; received bytes land in
 * the caller's memory itself. With TCP a serve thread of the source answers from what serve/serve.c
 * exports. With verbs (verbs/) a read is an RDMA READ, and no thread runs at the source.
 *
 * A key names a segment and one grant of it, that of one attempt. It is granted (tp_export) before TRANSFER and revoked
 * (tp_unexport) before access at the source is given back; after tp_unexport returns, no byte of
 * that attempt leaves this node.
 *
 * Thread-safety: a tp_conn belongs to the one thread that opened it. tp_export, tp_unexport and
 * tp_get_stats may be called from any thread, but not from within a struct tp_export_ops.
 */
#ifndef RAMP_TRANSPORT_H
#define RAMP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"

struct tp; /* the transport of one daemon */
struct peers;
struct loop;

enum tp_class { TP_DEMAND = 1, TP_PREFETCH = 2 };

#define TP_READ_MAX_BYTES (2u << 20) /* of one read */
#define TP_QUEUE_MAX	  64	     /* reads in flight on one connection */

#define TP_GRANT_BYTES 16

/* The right to read a segment. Both ends know it; of the wire it is all that names an attempt. */
struct tp_key {
	ramp_segment_t segment;
	uint8_t grant[TP_GRANT_BYTES]; /* random */
};

/* Returns the key of one attempt at a migration: the grant is k itself, two random numbers, one by
   each end. A grant for something else is any 16 random bytes. */
struct tp_key tp_key_of_attempt(ramp_segment_t segment, struct ramp_attempt k);
/* Takes as long for keys that differ as for equal ones. */
bool tp_key_equal(const struct tp_key *a, const struct tp_key *b);

/* The content of an exported key. */
struct tp_export_ops {
	/*
	 * By a serve thread, several at once: finds the content of [offset, offset + len) of the segment: sets *data to readable memory
	 * that stays valid until `done`, or to NULL where the source has a hole, and *out_len to
	 * how far this one answer reaches (a multiple of the page size, > 0; for a hole it may
	 * reach beyond len, to the next data or the end of the file). Returns 0 or a negative
	 * errno, which the reader gets. Must not block for long.
	 */
	int (*piece)(void *arg, uint64_t offset, size_t len, const void **data, uint64_t *out_len);
	/*
	 * By the same thread: gives a *data back. Called once for each, with the same pointer, when it was sent or its
	 * connection ended. At most one per connection is out at a time. `len` is how much of it
	 * was sent, `left` how much was not, because it could not be read or the connection failed.
	 */
	void (*done)(void *arg, const void *data, size_t len, size_t left);
	/*
	 * By a worker: finds the first run of memory at or behind `from` that may be read without
	 * asking piece: its pages are populated and LOCAL (not LOST), and no hole is in it. 1: whole
	 * pages [*offset, *offset + *len), of which the last may reach beyond the size; 0: there is
	 * none; or a negative errno. May block in the kernel. From the freeze on, what it said is
	 * true until unexport, but for memory that fails.
	 */
	int (*next_run)(void *arg, uint64_t from, uint64_t *offset, uint64_t *len);
	/* By a serve thread: whether it is read ahead of a hand-over, so that the reader's threads, and those that
	   serve it, need not go before programs. NULL: it is not. */
	bool (*ahead)(void *arg);
};

struct tp_export {
	struct tp_key key;
	ramp_node_t reader; /* any other node gets the answer of a revoked key */
	/* The memory's file, for a transport that maps it: it takes a descriptor of its own by
	   dup(2), close-on-exec, and closes that in unexport. -1: nothing to map. */
	int map_fd;
	uint64_t size; /* bytes */
	const struct tp_export_ops *ops;
	void *arg;
};

enum tp_kind {
	TP_DATA, /* len bytes are in dst */
	TP_HOLE, /* [offset, offset + hole_len) reads as zeros at the source; dst is untouched */
};

struct tp_read {
	struct tp_key key;
	uint64_t offset; /* into the segment; page-aligned */
	uint32_t len;	 /* bytes, a multiple of the page size, <= TP_READ_MAX_BYTES */
	void *dst;	 /* where the bytes land; stays valid until the read is reaped */
	uint64_t cookie; /* of the caller */
};

struct tp_done {
	uint64_t cookie;
	int result; /* 0; -EKEYREVOKED: the source does not grant that key, or no longer does; other:
		       -errno of the source */
	enum tp_kind kind;
	uint64_t offset;
	uint64_t len; /* of the data or hole that begins at offset; may be less than asked (then a
			 further completion of the same cookie follows, `more` is set) or, for a
			 hole, more */
	bool more;    /* and its offset is where this one ends */
};

/* One data connection to one peer. */
struct tp_conn {
	struct tp *tp;
};

struct tp_stats {
	uint64_t served_bytes, served_reads, served_holes; /* as a source */
	uint64_t read_bytes, reads;			   /* as a target */
	uint64_t connections;				   /* now, those taken from peers */
	uint64_t cut;	   /* connections cut by an unexport: their reader was too slow */
	uint64_t rejected; /* connections closed for a protocol violation */
};

/* Why a part of a segment is left to TCP. */
enum tp_left {
	TP_LEFT_SHORT,	/* a run that is not worth a registration */
	TP_LEFT_MEMORY, /* no memory may be pinned */
	TP_LEFT_CUT,	/* pages that are not there any more */
	TP_LEFT_OTHER,
	TP_LEFT_REASONS
};

/* RDMA between this node and another one. */
struct tp_peer {
	ramp_node_t node;
	bool offers;		   /* it has said where its adapter takes connections */
	unsigned reading, read_by; /* queue pairs: this node reads there, it reads here */
	/* As a source. */
	uint64_t registered_bytes;		/* that it may read now */
	uint64_t chunks, left[TP_LEFT_REASONS]; /* ever: registered, left to TCP */
	/* As a target. */
	uint64_t read_bytes, reads; /* by READs */
	uint64_t again;		    /* reads that were begun by READs, and made again over TCP */
	uint64_t lost;		    /* queue pairs that were lost while reads were under way */
};

enum tp_state { TP_CONNECTING, TP_READY, TP_FAILED };

/* The operations of a transport. No slot is NULL. */
struct tp_ops {
	const char *name; /* "tcp", "verbs" */
	/* Exports under a key. 0; -EEXIST: the key is in use; or -ENOMEM. */
	int (*export)(struct tp *tp, const struct tp_export *export, struct ramp_err *err);
	/* Revokes a key. Blocks until the bytes that were sent of it have arrived, at most 250 ms: a
	   connection that has not taken it by then is cut. A key that is not exported: nothing. */
	void (*unexport)(struct tp *tp, const struct tp_key *key);
	/* Says that connections to that node will soon be made. Never blocks. TCP: nothing. */
	void (*expect)(struct tp *tp, ramp_node_t node);
	/* Begins to connect; -EHOSTUNREACH where the peer's address is not known. The peer must
	   prove `incarnation` (0: any). The caller owns *out, and closes it. */
	int (*connect)(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
		       enum tp_class class, struct tp_conn **out, struct ramp_err *err);
	/* Returns a descriptor for poll(2) or epoll(7), the same for the connection's whole life;
	   *events: those to wait for now (EPOLLIN, EPOLLOUT). It may be an epoll itself, of all
	   that the connection waits for. */
	int (*fd)(struct tp_conn *conn, uint32_t *events);
	/* Continues to connect, and the hello, without blocking. Call it when fd() shows events,
	   and at least every second, since it is this that ends a hello that takes more than 5 s.
	   `err` is filled where the result is TP_FAILED. */
	enum tp_state (*state)(struct tp_conn *conn, struct ramp_err *err);
	/* Returns the incarnation that the peer proved; 0 before TP_READY. It is also set on a
	   TP_FAILED whose reason was another incarnation: that proves that the old one is over. */
	ramp_incarnation_t (*incarnation)(struct tp_conn *conn);
	/* Says that reads under that key come once the connection is TP_READY: what they need of the
	   source is asked for beside the hello. Never blocks. TCP: nothing. */
	void (*will_read)(struct tp_conn *conn, const struct tp_key *key);
	/* Returns how many of the `len` bytes at `offset` one read may ask for, from the first on:
	   behind them it would be another transport's. Both are of whole pages, and the result is,
	   at least one. It holds until the next call on this connection but `fd`. Without a system
	   call, without a lock. TCP: len. */
	size_t (*span)(struct tp_conn *conn, const struct tp_key *key, uint64_t offset, size_t len);
	/* True: a read of the byte at `offset` lands in its place without a processor, so it is of no
	   use to have it land elsewhere first. As cheap as span. TCP: false. */
	bool (*lands)(struct tp_conn *conn, const struct tp_key *key, uint64_t offset);
	/* Posts a read, within one span. 0; -EAGAIN: TP_QUEUE_MAX are in flight; -EINVAL: not as struct tp_read
	   says; -ENOTCONN: not TP_READY. */
	int (*read)(struct tp_conn *conn, const struct tp_read *read);
	/* The reader has all bytes before `upto`, and asks for them no more: what the source holds
	   for reads of them alone (pinned memory) may go. The source frees none of its memory.
	   Never blocks; may be lost. TCP: nothing. */
	void (*arrived)(struct tp_conn *conn, const struct tp_key *key, uint64_t upto);
	/* Moves bytes without blocking and gives up to `max` completions. `max_bytes` bounds the
	   bytes that it takes before it returns (0: no bound). Returns how many completions, or
	   -ENOTCONN once failed: reads in flight are then lost, and the caller gives their pages
	   back. */
	int (*reap)(struct tp_conn *conn, struct tp_done *done, int max, size_t max_bytes);
	/* Closes and frees; reads in flight are lost. */
	void (*close)(struct tp_conn *conn);
	/* Ends its threads and the connections that peers have opened, and frees. Before
	   peers_close; no other call may be under way, and the caller's own connections are
	   closed. */
	void (*stop)(struct tp *tp);
	void (*stats)(struct tp *tp, struct tp_stats *stats);
	/* Fills the figures of RDMA with out->node. False: this node reads and serves over TCP alone. */
	bool (*peer)(struct tp *tp, struct tp_peer *out);
};

struct tp {
	const struct tp_ops *ops;
};

static inline int tp_export(struct tp *tp, const struct tp_export *export, struct ramp_err *err)
{
	return tp->ops->export(tp, export, err);
}

static inline void tp_unexport(struct tp *tp, const struct tp_key *key)
{
	tp->ops->unexport(tp, key);
}

static inline void tp_get_stats(struct tp *tp, struct tp_stats *stats)
{
	tp->ops->stats(tp, stats);
}

#define TRANSPORT_STREAMS_MAX 8u

/* AUTO: the best one that this node has, and TCP for peers that lack it. */
enum transport_choice { TRANSPORT_AUTO, TRANSPORT_TCP, TRANSPORT_VERBS };

struct transport_config {
	struct peers *peers; /* gives data connections; outlives the transport */
	struct loop *loop;   /* the control loop, which outlives it, too */
	enum transport_choice choice;
	const char *address; /* HOST:PORT of this node; until transport_open returns */
	/* Threads that serve others' reads, TRANSPORT_STREAMS_MAX at most; 0: by the processors. */
	unsigned streams;
	uint64_t limit_bytes_s; /* of what is sent over connections for prefetch by TCP; 0: none */
};

/* Opens the transports that reads of other nodes need. The caller ends it with ops->stop. -ENODEV: VERBS,
   and no RDMA device has this node's address. Blocks to resolve it. */
int transport_open(const struct transport_config *config, struct tp **out, struct ramp_err *err);

#endif
