/*
 * Userfaultfds that the broker closes for the daemon (broker_release.c).
 */
#ifndef RAMP_PROGRAMS_BROKER_RELEASE_H
#define RAMP_PROGRAMS_BROKER_RELEASE_H

#include <stdint.h>
#include <sys/types.h>

struct programs;

#define RELEASE_IDS (UINT64_C(1) << 63) /* ids of releases begin here; those of clients are less */
/* Takes over fd, a userfaultfd that a program has sent, and has the broker close it. Any thread;
   never waits. */
void broker_release(struct programs *p, uid_t uid, int fd);
/* Sends what may be sent to the broker now. Control thread; so are those that follow. */
void broker_release_run(struct programs *p);
/* The broker has closed that one. */
void broker_release_ended(struct programs *p, uint64_t id);
/* The broker has died, and with it the copies that it had. */
void broker_release_lost(struct programs *p);
/* At the daemon's end: closes the rest here, without a broker. */
void broker_release_close(struct programs *p);

#endif
