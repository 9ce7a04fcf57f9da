/*
 * A control connection after its hello: messages with counters and HMACs.
 *
 * Thread-safety: the control loop's thread, but for channel_send.
 */
#ifndef RAMP_CHANNEL_H
#define RAMP_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hmac.h"

struct channel;
struct hello;
struct peer;
struct stream;

/* Makes peer->channel; nothing is read before channel_start. Takes the stream on success. */
int channel_open(struct peer *peer, const struct stream *stream, const struct hello *hello,
		 bool dialed, struct ramp_err *err);
void channel_start(struct channel *channel);
/* Derives a key of this connection, the same at both ends. Any thread, peer->lock held. */
int channel_key(const struct channel *channel, const char *label, uint8_t key[HMAC_BYTES]);
/* Sends one message, as peer_send says; of the loop's thread: once it has handled what it has read, or
   before it sleeps. Any thread, peer->lock held; *wake: call loop_wake_send for
   peers->wake after. */
int channel_send(struct channel *channel, uint8_t type, const void *body, size_t len, bool *wake);
/* Writes the messages that senders have queued; ends a broken channel. */
void channel_attend(struct channel *channel);
/* Writes what the loop's thread has sent. False: there was nothing. */
bool channel_flush(struct channel *channel);
/* Sends a keep-alive where nothing was sent; ends the channel where the peer was silent for too
   long. */
void channel_tick(struct channel *channel);
/* Closes the connection and frees the channel, which is no longer in peer->channel. */
void channel_close(struct channel *channel);
/* Returns the other end's address, for the log. */
const char *channel_endpoint(const struct channel *channel);
int channel_fd(const struct channel *channel);

#endif
