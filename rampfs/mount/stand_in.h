/*
 * The process that answers requests while no daemon can start (rampfs --stand-in).
 */
#ifndef RAMP_STAND_IN_H
#define RAMP_STAND_IN_H

#include <stdint.h>

/*
 * Serves the connection at KEEPER_FD_FUSE for STAND_IN_MS. The files of .ramp say why no daemon
 * serves, which the keeper tells in a message; every other request is answered EIO once it has
 * waited for STAND_IN_HOLD_MS. A request that has not waited that long is left to the next process,
 * which has it sent again. Returns when its time is over, when the keeper says anything else, or when the mount
 * is gone, which the keeper is told. Returns the exit status.
 */
#define STAND_IN_MS	 5000
#define STAND_IN_HOLD_MS 1500
int stand_in_run(void);

#endif
