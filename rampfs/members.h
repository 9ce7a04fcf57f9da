/*
 * Changes of the cluster's members, asked for by rampfs-node over the session, or by mkfs.rampfs
 * --join over the peers' port. Each is refused without the proof that it needs:
 *
 *   fence    the operator's word, which names the incarnation; not while this node hears it
 *   remove   nothing is at the node any more, and the other members that vote and are heard are a
 *            quorum
 *   add      the name and the address are free
 *   promote  the node is up, so that it can catch up and vote
 *   join     the cluster key (the hello's); a name that is free, or was added and never up
 *   rejoin   the key, and that the old one is silent: it is fenced, removed, and joins as another; or it
 *            keeps its number, where its store is there: the store's incarnation is its row's, not fenced
 *
 * Requests wait for Raft, so they are carried out by one worker, one after the other.
 */
#ifndef RAMP_MEMBERS_H
#define RAMP_MEMBERS_H

#include "base/err.h"
#include "base/loop.h"
#include "meta/meta.h"
#include "programs/programs.h"
#include "transport/hello.h"
#include "transport/peers/peer.h"

struct members;

struct members_config {
	struct loop *loop;
	struct meta *meta;
	struct peers *peers;
	const char *cluster; /* its name; outlives the members */
};

int members_open(const struct members_config *config, struct members **out, struct ramp_err *err);
/* Control loop, while meta and peers are open: begins no change any more, and waits for those under
   way (5 s at most). */
void members_close(struct members *members);

/* programs_set_members's handler. */
void members_asked(void *members, struct tool_request *request, const struct tool_member *what);
/* peers_config's join: takes fd. */
void members_join(struct members *members, int fd, const struct hello *hello);

#endif
