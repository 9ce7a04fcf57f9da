/*
 * The broker as the daemon has it: a process that receives what strangers send, and closes what
 * they sent (broker.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_BROKER_H
#define RAMP_PROGRAMS_BROKER_H

#include <stdint.h>

#include "base/err.h"

struct broker;
struct loop;

/* What comes from it. */
struct broker_ops {
	/* The userfaultfd of that client, fd is the callee's; -1: `why` (an errno) it was no
	   good. */
	void (*uffd)(void *arg, uint64_t client, int fd, int why);
	/* The thread that waited for that client, or had that id to let go of, has ended. */
	void (*ended)(void *arg, uint64_t id);
	/* It has died, and what it had with it; another is about to start. */
	void (*lost)(void *arg);
};

int broker_open(struct loop *loop, const struct broker_ops *ops, void *arg, struct broker **out,
		struct ramp_err *err);
void broker_close(struct broker *broker);
/* The userfaultfd of `client` will come over `door` (stays the caller's): ops->uffd gets it, and
   ops->ended comes when the thread that waited there has ended. -EAGAIN: there is no broker now, or
   it is behind; this never waits. */
int broker_ask(struct broker *broker, uint64_t client, int door);
/* In two steps, and nothing of the kind in between: the broker has a copy of fd, which stays the
   caller's, and lets go of it when he says so. ops->ended comes when it has. -errno: later. */
int broker_let_go(struct broker *broker, uint64_t id, int fd);
int broker_go(struct broker *broker, uint64_t id);

#endif
