/*
 * The broker, from the daemon's side: a child process that receives the descriptors that clients
 * send, and closes them (broker.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_BROKER_H
#define RAMP_PROGRAMS_BROKER_H

#include <stdint.h>

#include "base/err.h"

struct broker;
struct loop;

/* Events that come from the broker. */
struct broker_ops {
	/* The userfaultfd of that client: fd is the callee's. -1: it was refused, `why` is an
	   errno. */
	void (*uffd)(void *arg, uint64_t client, int fd, int why);
	/* Its second userfaultfd, before the first one, where the client has sent two. */
	void (*second)(void *arg, uint64_t client, int fd);
	/* The broker's thread for that client, or for that id of broker_let_go, has ended. */
	void (*ended)(void *arg, uint64_t id);
	/* The broker has died, and with it all its threads; another is about to start. */
	void (*lost)(void *arg);
};

int broker_open(struct loop *loop, const struct broker_ops *ops, void *arg, struct broker **out,
		struct ramp_err *err);
void broker_close(struct broker *broker);
/* Tells the broker that the userfaultfd of `client` will come over `door`, which stays the
   caller's. ops->uffd gets it, and ops->ended comes when the thread that waited at the door has
   ended. -EAGAIN: there is no broker now, or its socket is full. Never waits. */
int broker_ask(struct broker *broker, uint64_t client, int door);
/* Has the broker close a descriptor, in two steps, with no other such pair in between:
   broker_let_go gives it a copy of fd, which stays the caller's; broker_go, after the caller has
   closed that, lets it close the copy. ops->ended comes when it has. -errno: try later. */
int broker_let_go(struct broker *broker, uint64_t id, int fd);
int broker_go(struct broker *broker, uint64_t id);

#endif
