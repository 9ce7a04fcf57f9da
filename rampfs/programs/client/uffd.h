/*
 * A client's userfaultfd: the handshake, registering, and reading what arrives on it (uffd.c).
 * Waking is in programs.h.
 */
#ifndef RAMP_PROGRAMS_UFFD_H
#define RAMP_PROGRAMS_UFFD_H

#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct client;

#define UFFD_READ_MAX 32 /* messages that are read at once */

/* Makes UFFDIO_API's handshake. 0; -EINVAL and the like: the userfaultfd is of no use, err says
   why. */
int uffd_handshake(int uffd, struct ramp_err *err);
/* Registers and unregisters a range. -EINVAL: nothing is mapped there any more, or something
   else is. */
int uffd_arm(struct client *client, uint64_t start, uint64_t end);
void uffd_disarm(struct client *client, uint64_t start, uint64_t end);
/* Makes the handshake of the second userfaultfd, or does without it. */
void uffd_handshake_second(struct client *client);
/* Registers a range with the second userfaultfd, and protects the first `len` bytes of it: loads continue, and
   a store there waits until uffd_disarm. -EOPNOTSUPP: the agent has none; -EBUSY: it is registered with the first one. */
int uffd_hold(struct client *client, uint64_t start, uint64_t end, uint64_t len);
/* Wakes what waits in a range, whichever of the two it is registered with. */
void uffd_wake(struct client *client, uint64_t start, uint64_t len);

/* Whether a remap is under way there, or its event has been read and its thread has not run since. */
bool uffd_remapping(struct client *client);
/* Counts the program's own remap events so far. False: one is under way. */
bool uffd_remaps(struct client *client, uint64_t *count);

/* Reads messages, without blocking, and counts the program's remap events among them. Returns the bytes
   read; -EAGAIN: none have come; -errno. */
ssize_t uffd_read(struct client *client, struct uffd_msg *msgs, size_t count);
/* Handles a message that is not a page fault. */
void uffd_take_event(struct client *client, const struct uffd_msg *msg);
/* Reads what has arrived, for a thread to which the kernel says EAGAIN. Page faults are woken,
   and come again. */
void uffd_drain(struct client *client);
/* The same, but leaves the page faults in [lo, hi) waiting: its segment is frozen. */
void uffd_drain_but(struct client *client, uint64_t lo, uint64_t hi);
/* Waits between two such tries: yields the processor, and sleeps from the ninth try on. */
void uffd_let_others(int tries);

#endif
