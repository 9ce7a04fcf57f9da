/*
 * A client's userfaultfd: the handshake, registering, and what arrives on it (uffd.c). The waking
 * is in programs.h.
 */
#ifndef RAMP_PROGRAMS_UFFD_H
#define RAMP_PROGRAMS_UFFD_H

#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct space;

#define UFFD_READ_MAX 32 /* messages that are read at once */

/* 0; -EINVAL and the like: no good, `why` says it. */
int uffd_handshake(int uffd, struct ramp_err *err);
/* Registers / unregisters. -EINVAL: nothing is there any more, or something else. */
int uffd_arm(struct space *client, uint64_t start, uint64_t end);
void uffd_disarm(struct space *client, uint64_t start, uint64_t end);

/* How many remap events there were; false: one is under way. */
bool uffd_remaps(struct space *client, uint64_t *count);

/* Bytes of what has arrived, remap events among it being counted; -EAGAIN: nothing; -errno. */
ssize_t uffd_read(struct space *client, struct uffd_msg *msgs, size_t count);
/* Handles a message that is no page fault. */
void uffd_take_event(struct space *client, const struct uffd_msg *msg);
/* What arrives on a userfaultfd while the kernel says EAGAIN; page faults are woken, and come
   again. */
void uffd_drain(struct space *client);
/* Between two such tries: gives way, and sleeps after the first few. */
void uffd_let_others(int tries);

#endif
