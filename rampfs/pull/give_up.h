/*
 * Pages that a program gives up before they have come.
 */
#ifndef RAMP_GIVE_UP_H
#define RAMP_GIVE_UP_H

#include "pulled.h"

/* Decides each page of a GIVEN_UP entry that is REMOTE and of which no read is under way: LOST, or LOCAL and a
   hole. 0, or a negative errno: some are REMOTE. */
int give_up_decide(struct pulled *pulled);

#endif
