/*
 * Userfaultfds that the broker closes for the daemon (broker_release.c).
 */
#ifndef RAMP_PROGRAMS_BROKER_RELEASE_H
#define RAMP_PROGRAMS_BROKER_RELEASE_H

#include <stdint.h>
#include <sys/types.h>

struct programs;

#define RELEASE_IDS (UINT64_C(1) << 63) /* from here on; those of clients are less */
/* fd, which a program has sent, is ours no more. Any thread; nobody waits. */
void broker_release(struct programs *p, uid_t uid, int fd);
/* Control thread: sends what may be sent. */
void broker_release_run(struct programs *p);
void broker_release_ended(struct programs *p, uint64_t id);
/* The broker has died, and what he had with him. */
void broker_release_lost(struct programs *p);
/* At the end, without a broker. */
void broker_release_close(struct programs *p);

#endif
