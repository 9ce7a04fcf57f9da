/*
 * Remote memory: what a source exports under a key, and one-sided reads of it.
 *
 * A target opens two connections to a source, one for demand and one for prefetch (RAMP's stated
 * flaw was to share one), posts reads and reaps completions; received bytes land in the caller's
 * memory itself. With verbs a read is an RDMA READ and nobody runs at the source; with TCP the
 * source's serve thread answers from what pull/serve.c exports.
 *
 * A key names one attempt of one segment. It is granted (tp_export) before TRANSFER and revoked
 * (tp_unexport) before access at the source is given back; after tp_unexport returns no byte of
 * that attempt leaves this node.
 *
 * Thread-safety: a tp_conn belongs to the one thread that opened it. tp_export/tp_unexport from
 * any thread.
 */
#ifndef RAMP_TRANSPORT_H
#define RAMP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "ids.h"

struct tp;	/* one transport of one daemon */
struct tp_conn; /* one data connection to one peer */
struct peers;

enum tp_class { TP_DEMAND = 1, TP_PREFETCH = 2 };

#define TP_READ_MAX_BYTES (2u << 20) /* of one read */
#define TP_QUEUE_MAX	  64	     /* reads in flight on one connection */

struct tp_key {
	ramp_segment_t segment;
	uint64_t k_epoch; /* the prepare's */
	struct ramp_attempt k;
};

/* What an exported key reads as. */
struct tp_export_ops {
	/*
	 * Finds what stands at [offset, offset + len) of the segment: sets *data to readable
	 * memory that stays valid until `done`, or NULL where the source has a hole there, and
	 * *out_len to how far that one answer reaches (a multiple of the page size, > 0; for a
	 * hole it may reach beyond len, to the next data or the end of the file). Returns 0 or a
	 * negative errno, which the reader gets. Serve thread; must not block for long.
	 */
	int (*piece)(void *arg, uint64_t offset, size_t len, const void **data, uint64_t *out_len);
	void (*done)(void *arg, const void *data, size_t len);
};

enum tp_kind {
	TP_DATA, /* len bytes stand in dst */
	TP_HOLE, /* [offset, offset + hole_len) reads as zeros at the source; dst is untouched */
};

struct tp_read {
	struct tp_key key;
	uint64_t offset; /* into the segment; page-aligned */
	uint32_t len;	 /* bytes, a multiple of the page size, <= TP_READ_MAX_BYTES */
	void *dst;	 /* where the bytes land; stays valid until the read is reaped */
	uint64_t cookie; /* the caller's */
};

struct tp_done {
	uint64_t cookie;
	int result; /* 0; -EKEYREVOKED: the source does not grant that key (any more); other: -errno
		       of the source */
	enum tp_kind kind;
	uint64_t offset;
	uint64_t len; /* of the data or hole that begins at offset; may be less than asked (then a
			 further completion of the same cookie follows, `more` is set) or, for a
			 hole, more */
	bool more;
};

enum tp_state { TP_CONNECTING, TP_READY, TP_FAILED };

/* A transport's operations: no slot is NULL. */
struct tp_ops {
	const char *name; /* "tcp", "verbs" */
	int (*export)(struct tp *tp, const struct tp_key *key, const struct tp_export_ops *ops,
		      void *arg, struct ramp_err *err);
	void (*unexport)(struct tp *tp, const struct tp_key *key);
	/* Begins to connect; -EHOSTUNREACH where the peer's address is not known. The peer must
	   prove `incarnation` (0: any). */
	int (*connect)(struct tp *tp, ramp_node_t node, ramp_incarnation_t incarnation,
		       enum tp_class class, struct tp_conn **out, struct ramp_err *err);
	/* For poll(2)/epoll; *events: what to wait for now (EPOLLIN, EPOLLOUT). */
	int (*fd)(struct tp_conn *conn, uint32_t *events);
	enum tp_state (*state)(struct tp_conn *conn, struct ramp_err *err);
	/* The incarnation that the peer proved; 0 before TP_READY (also set on a TP_FAILED whose
	   reason was another incarnation: that is the proof that the old one is over). */
	ramp_incarnation_t (*incarnation)(struct tp_conn *conn);
	/* Posts a read; -EAGAIN: TP_QUEUE_MAX are in flight; -ENOTCONN. */
	int (*read)(struct tp_conn *conn, const struct tp_read *read);
	/* Moves bytes without blocking and gives up to `max` completions; *max_bytes bounds what
	   it takes before it returns (0: no bound). Returns how many, or -ENOTCONN once failed:
	   reads in flight are then lost and the caller gives their pages back. */
	int (*reap)(struct tp_conn *conn, struct tp_done *done, int max, size_t max_bytes);
	void (*close)(struct tp_conn *conn); /* reads in flight are lost */
	void (*stop)(struct tp *tp);	     /* closes all, ends its threads, frees */
};

struct tp {
	const struct tp_ops *ops;
};

static inline int tp_export(struct tp *tp, const struct tp_key *key,
			    const struct tp_export_ops *ops, void *arg, struct ramp_err *err)
{
	return tp->ops->export(tp, key, ops, arg, err);
}

static inline void tp_unexport(struct tp *tp, const struct tp_key *key)
{
	tp->ops->unexport(tp, key);
}

/* Starts TCP with its serve thread; takes data connections from `peers`, which outlives it. */
int tcp_open(struct peers *peers, struct tp **out, struct ramp_err *err);

#endif
