/*
 * Scripted cases for the real Raft core, on a stage (stage.h).
 */
#ifndef RAMP_SCRIPTED_H
#define RAMP_SCRIPTED_H

#include <check.h>

#include "stage.h"

TCase *scripted_log(void);    /* scripted_log.c */
TCase *scripted_votes(void);  /* scripted_votes.c */
TCase *scripted_leader(void); /* scripted_leader.c */

#endif
