/*
 * What becomes of a client, from its userfaultfd to its end (client_life.c).
 */
#ifndef RAMP_PROGRAMS_CLIENT_LIFE_H
#define RAMP_PROGRAMS_CLIENT_LIFE_H

#include "client/workers.h"

struct session_conn;
struct client;

/* Jobs of the workers. client_ready and client_look take over a reference to their client.
   clients_sweep, with the programs as its argument, drops the orphans that need not be kept any
   more. */
worker_fn client_ready, client_look, clients_sweep;
/* Makes an orphan of an earlier daemon, DEAD, one of this daemon's. Takes over the reference. */
void client_adopt(struct client *client);
/* Sends READY; a result other than 0 ends the session. */
void client_say_ready(struct client *client, int result, const char *text);
/* Ends the client: its session has hung up. Takes over the reference of the list. Control
   thread. */
void client_end(struct session_conn *conn);

#endif
