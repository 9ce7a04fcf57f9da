/*
 * Slots at the broker: which client may send its userfaultfd now, and which waits in line
 * (broker_queue.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_BROKER_QUEUE_H
#define RAMP_PROGRAMS_BROKER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct programs;
struct session_conn;

/* Takes a slot and sends WELCOME. False: no slot is free for this user now; call
   broker_queue_wait. */
bool broker_queue_take(struct session_conn *conn);
/* Puts the session at the end of the line. */
void broker_queue_wait(struct session_conn *conn);
/* Returns the user of a client that has a slot, also after it has hung up; -1: it has none. */
uid_t broker_queue_uid(const struct programs *p, uint64_t client);
/* The broker's thread for that client has ended: frees its slot for the next session in line. */
void broker_queue_closed(struct programs *p, uint64_t client);
/* The broker has died: frees all slots and hangs up on the sessions that wait for it; they come
   again. */
void broker_queue_lost(struct programs *p);
/* At the daemon's end. */
void broker_queue_free(struct programs *p);

#endif
