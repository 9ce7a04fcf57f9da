/*
 * Conversations with an agent (agent_call.c).
 */
#ifndef RAMP_PROGRAMS_AGENT_CALL_H
#define RAMP_PROGRAMS_AGENT_CALL_H

#include <stdint.h>

#include "base/session.h"

struct mapped_segment;
struct space;

/* Locks io, sends, waits for DONE. 0, the agent's -errno (with `at`: DONE's addr), -ETIMEDOUT,
   -ESRCH (the session is over), -EPROTO (then it has been hung up). */
int agent_call(struct space *client, struct session_msg *msg, int fd, uint64_t until_ms,
	       uint64_t *at);
/* The same with io held by the caller. */
int agent_ask(struct space *client, struct session_msg *msg, int fd, uint64_t until_ms,
	      uint64_t *at);
/* In two steps, with io held by the caller. */
int agent_send(struct space *client, struct session_msg *msg, int fd);
int agent_wait(struct space *client, uint32_t serial, uint64_t until_ms, uint64_t *at);
/* The same without waiting: -EAGAIN when the DONE has not come. */
int agent_look(struct space *client, uint32_t serial, uint64_t *at);
/* A GONE that was sent and not answered: the range is woken when it is. io is held. */
void agent_expect(struct space *client, uint32_t serial, struct mapped_segment *mseg, uint64_t addr,
		  uint64_t len);
/* Control thread: takes late answers, if nobody else is in a conversation. */
void agent_take_late(struct space *client);
/* Drops what it has not answered: nobody knows the client any more. */
void agent_forget_late(struct space *client);

#endif
