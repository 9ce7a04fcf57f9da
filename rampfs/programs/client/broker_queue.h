/*
 * The slots at the broker: which client may send its userfaultfd now, and which stands in line
 * (broker_queue.c). Control thread.
 */
#ifndef RAMP_PROGRAMS_BROKER_QUEUE_H
#define RAMP_PROGRAMS_BROKER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct programs;
struct session_conn;

/* Sends WELCOME where there is a slot. False: there is none now, and when one is closed there may
   be: broker_queue_wait. */
bool broker_queue_take(struct session_conn *conn);
void broker_queue_wait(struct session_conn *conn);
/* The user of the client that has a slot, or had it; -1: not known any more. */
uid_t broker_queue_uid(const struct programs *p, uint64_t client);
/* The broker's thread has ended: room for another one that waits. */
void broker_queue_closed(struct programs *p, uint64_t client);
/* The broker has died: sessions that wait for it are hung up, and come again. */
void broker_queue_lost(struct programs *p);
/* At the end. */
void broker_queue_free(struct programs *p);

#endif
