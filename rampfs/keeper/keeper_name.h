/*
 * The name of the listening session socket, which programs look for.
 */
#ifndef RAMP_KEEPER_NAME_H
#define RAMP_KEEPER_NAME_H

#include "keeper_state.h"

/* Makes a listening socket at that path, in the place of an older one: *fd, above KEEPER_HIGH_FD. */
int keeper_listen_at(const struct keeper_config *config, const char *path, int *fd,
		     struct ramp_err *err);
/* Notes the name as it is now as that of k->sessions, and begins to look after it. */
void keeper_name_note(struct keeper *k);
/* Looks, at k->look_at_ms, whether the name is still there; if not, begins to bind it again. */
void keeper_name_look(struct keeper *k);
/* The daemon has taken the new socket. */
void keeper_name_taken(struct keeper *k);
/* Drops a new socket that no daemon has taken. */
void keeper_name_drop(struct keeper *k);

#endif
