/*
 * What becomes of a client, from its userfaultfd to its end (client_life.c).
 */
#ifndef RAMP_PROGRAMS_CLIENT_LIFE_H
#define RAMP_PROGRAMS_CLIENT_LIFE_H

#include "client/workers.h"

struct session_conn;
struct space;

/* Jobs of the workers. ready and look: take a reference with them. sweep: of the programs, drops
   the orphans that need not be kept any more. */
worker_fn client_ready, client_look, clients_sweep;
/* A former daemon's orphan, DEAD, is one of ours, reference and all. */
void client_adopt(struct space *client);
/* READY; a result other than 0 ends the session. */
void client_say_ready(struct space *client, int result, const char *text);
/* Its session has hung up; the list's reference goes. Control thread. */
void client_end(struct session_conn *conn);

#endif
