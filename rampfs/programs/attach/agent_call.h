/*
 * Conversations with an agent (agent_call.c).
 */
#ifndef RAMP_PROGRAMS_AGENT_CALL_H
#define RAMP_PROGRAMS_AGENT_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"

struct mapped_segment;
struct client;

/* Locks io, sends a command, and waits for its DONE. 0 (`at`: DONE's addr); the agent's -errno;
   -ETIMEDOUT; -ESRCH: the session is over; -EPROTO: it was hung up on. */
int agent_call(struct client *client, struct session_msg *msg, int fd, uint64_t until_ms,
	       uint64_t *at);
/* The same, with io held by the caller. */
int agent_ask(struct client *client, struct session_msg *msg, int fd, uint64_t until_ms,
	      uint64_t *at);
/* The same in two steps, with io held by the caller. */
int agent_send(struct client *client, struct session_msg *msg, int fd);
int agent_wait(struct client *client, uint32_t serial, uint64_t until_ms, uint64_t *at);
/* As agent_wait, without waiting. -EAGAIN: the DONE has not come yet. */
int agent_look(struct client *client, uint32_t serial, uint64_t *at);
/* Notes a GONE that was sent and not answered yet: when it is, the range is woken. io is held. */
void agent_expect(struct client *client, uint32_t serial, struct mapped_segment *mseg,
		  uint64_t addr, uint64_t len);
/* Whether the GONE of that range waits for its answer, which agent_wait(client, 0, ...) takes. io is
   held. */
bool agent_expects(struct client *client, const struct mapped_segment *mseg, uint64_t addr,
		   uint64_t len);
/* Takes late answers, unless another thread is in a conversation. Control thread. */
void agent_take_late(struct client *client);
/* Drops the notes of unanswered GONEs, when the last reference to the client goes. */
void agent_forget_late(struct client *client);

#endif
