/*
 * GONE and BACK: an empty file in a segment's place, and the segment at a scratch address.
 *
 * Each returns 0 or a positive errno. Of the agent's thread alone.
 */
#ifndef RAMP_REPLACE_H
#define RAMP_REPLACE_H

#include "agent_session.h"

/* Whether a GONE tells the program something new: it has the segment mapped, and nothing of that is
   gone. A daemon that had no answer in time (the process was stopped) sends GONE again. */
bool replace_is_news(const struct agent_session *session, const struct session_msg *msg);
/* `fd` is the empty file, or -1 where this process may open nothing any more. */
int replace_gone(const struct agent_session *session, const struct session_msg *msg, int fd);
/* With SESSION_SECOND: has the second userfaultfd's events read from now on. */
int replace_read_second(struct agent_session *session, const struct session_msg *msg);
/* Maps the segment's file `fd` at *at, where SWAP will find it. */
int replace_back(struct agent_session *session, const struct session_msg *msg, int fd,
		 uint64_t *at);

#endif
