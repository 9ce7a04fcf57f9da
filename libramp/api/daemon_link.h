/*
 * A connection to the mount's daemon that outlives the daemon: a descriptor to poll, which stays
 * the same while one connection follows another.
 *
 * A struct daemon_link is protected by its user's lock.
 */
#ifndef RAMP_API_DAEMON_LINK_H
#define RAMP_API_DAEMON_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/session.h"
#include "handle.h"

#define LINK_OTHER_VERSION "its daemon speaks another version of the protocol"
/* Connections that ended without a word, until the daemon is an older one. One that is killed again and again
   has answered once before. */
#define LINK_SILENT  10
#define LINK_AWAY_MS 10000u /* without a daemon, until link_next gives up */

struct daemon_link {
	struct ramp_cluster *ramp; /* a reference */
	int epoll;		   /* readable: call link_take */
	int timer, sock;	   /* sock -1: no connection */
	uint64_t away_since_ms;	   /* CLOCK_MONOTONIC: there is no daemon since; 0: there is one */
	unsigned silent; /* connections on which nothing has come, since the last that was not so */
};

/* Opens it without a connection. Returns 0 or a negative errno; link_close takes it in both
   cases. */
int link_open(struct daemon_link *link, struct ramp_cluster *ramp);
void link_close(struct daemon_link *link);
/* Connects, and sends `first`. Returns 0 or a negative errno; the connection counts as silent until
   something comes. */
int link_ask(struct daemon_link *link, const struct session_msg *first);
/* Judges the result of an ask (or why nothing could be asked). Returns 0: it was asked, or rests, since a daemon
   may come; -ETIMEDOUT: none has come for LINK_AWAY_MS; or `rc`: no later daemon will answer otherwise. */
int link_next(struct daemon_link *link, int rc);
/* Ends the connection, if there is one. */
void link_hang_up(struct daemon_link *link);
/* Makes link_take return -EPIPE after a short pause, so that its user asks again. */
void link_rest(struct daemon_link *link);
/* Keeps the descriptor readable from now on. */
void link_stay_readable(struct daemon_link *link);
/* Takes a message that has come. Returns 0; -EAGAIN: there is none; -EPIPE: the daemon hung up, or
   the rest without one is over: ask it or the next one; -EPROTO: its daemon speaks another version of
   the protocol. Rests where the daemon hung up without a word. */
int link_take(struct daemon_link *link, struct session_msg *msg);
/* Waits until the descriptor is readable: at most until until_ms (UINT64_MAX: without end). Returns
   false where the time was over before. */
bool link_wait(const struct daemon_link *link, uint64_t until_ms);
/* The same for a caller that a signal ends. Returns 1: it is readable; 0: the time was over; -EINTR: a signal
   handler has run. */
int link_poll(const struct daemon_link *link, uint64_t until_ms);
/* Returns the time at which timeout_ms (as of poll(2)) from now is over, for link_wait. */
uint64_t link_until_ms(int timeout_ms);

#endif
