/*
 * Giving a segment's addresses back, at its owner, and what other nodes answer (give_back.c).
 */
#ifndef RAMP_GIVE_BACK_H
#define RAMP_GIVE_BACK_H

#include "transfer_core.h"

/* Begins one. Any thread; `done` is called once, on the control loop. */
void give_back_post(struct transfers *t, ramp_segment_t id, migrate_done *done, void *arg);
void give_back_listen(struct transfers *t);
/* Ends those that no worker has; the next daemon hears the request again. */
void give_back_close(struct transfers *t);

#endif
