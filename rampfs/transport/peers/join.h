/*
 * How a node that is no member yet asks a member to take it in (mkfs.rampfs --join).
 *
 *   newcomer                                                member
 *   hello of class JOIN: both prove the cluster key; the newcomer learns the cluster's id
 *   {kind, name, address, capacity} MAC             ----->     (JOIN_KEPT: and incarnation, instance)
 *                      <-----  {result, text, number, cluster's name, arena, members} MAC
 *   and the end                                                (JOIN_KEPT: and a life)
 *
 * The key is the proof that both need: a node that has it may join. Each frame's MAC is under the
 * key of its direction of this one connection.
 *
 * All functions block, join_ask for JOIN_PATIENCE_MS at most, the others for HELLO_TIMEOUT_MS; none
 * belongs on the control loop. Thread-safety: one connection, one thread.
 */
#ifndef RAMP_JOIN_H
#define RAMP_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/ids.h"
#include "transport/hello.h"

#define JOIN_PATIENCE_MS 60000 /* a member may have to wait for other members */
#define JOIN_MEMBERS_MAX 256

enum join_kind {
	JOIN_NEW = 1, /* a name that no member has, or one that was added and was never up */
	JOIN_AGAIN,   /* a member that has lost its state: its number goes, it gets another one */
	JOIN_KEPT,    /* a member that has lost its journal alone: it keeps number and segments */
};

struct join_request {
	enum join_kind kind;
	char name[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1]; /* empty: the one that the cluster has */
	uint64_t capacity_bytes;	    /* 0: the one that the cluster has */
	/* JOIN_KEPT: of its store, and of the journal that it will have. */
	ramp_incarnation_t incarnation;
	uint64_t instance;
};

struct join_member {
	ramp_node_t node;
	char name[RAMP_NODE_NAME_MAX + 1];
	char address[RAMP_ADDRESS_MAX + 1];
	uint64_t capacity_bytes;
	bool voter;
};

struct join_answer {
	int result; /* 0 or a negative errno, which `text` explains */
	char text[RAMP_ERR_TEXT_BYTES];
	ramp_node_t node;			 /* the newcomer's number: one of the members */
	uint8_t cluster_id[HELLO_CLUSTER_BYTES]; /* from the hello */
	char cluster[RAMP_NODE_NAME_MAX + 1];
	uint64_t arena_addr, arena_len;
	uint64_t life;		     /* JOIN_KEPT: that of meta_founding; else 0 */
	struct join_member *members; /* the caller frees them */
	size_t n_members;
};

/* Newcomer: asks the member at HOST:PORT. The result is also answer->result; on failure there are
   no members. */
int join_ask(const char *at, const uint8_t cluster_key[HMAC_BYTES],
	     const struct join_request *request, struct join_answer *answer, struct ramp_err *err);

/* Runs the hello alone, and tells which cluster the node at HOST:PORT is of. -EKEYREJECTED, -EPROTO
   and -ECONNRESET: it is no node that has the key; -ETIMEDOUT: it takes connections, and is silent;
   -EPROTONOSUPPORT, -EACCES: it is a node; all others: there is none, or it can't be reached. */
int join_probe(const char *at, const uint8_t cluster_key[HMAC_BYTES],
	       uint8_t cluster_id[HELLO_CLUSTER_BYTES], struct ramp_err *err);

/* Member: receive a request and reply to it, after the hello, on its socket, which stays the
   caller's. -ENOMSG: the other end has left without a request (join_probe). */
int join_receive(int fd, const struct hello *hello, struct join_request *request,
		 struct ramp_err *err);
int join_reply(int fd, const struct hello *hello, const struct join_answer *answer,
	       struct ramp_err *err);

#endif
