/*
 * How the keeper and its daemon find and tell each other.
 *
 * A daemon finds when it is executed:
 *
 *   fd 3 KEEPER_FD_FUSE      /dev/fuse of the living connection
 *   fd 4 KEEPER_FD_CONTROL   socket to the keeper (SOCK_SEQPACKET)
 *   fd 5 KEEPER_FD_SESSIONS  the listening session socket
 *   fd 6 KEEPER_FD_LOCK      the locked file that shows that the state directory is in use
 *   fd 7, 8 KEEPER_FD_FDSTORE  the fdstore, a socket pair: the next daemon receives from it the
 *                            messages and descriptors that a daemon has sent into it
 *                            (programs/client/fdstore.c). Older keepers give none
 *   RAMPFS_CONNECTION        the connection's random id in hex, made at mount
 *
 * An adopting keeper finds the same (fd 4: the socket to the daemon), and RAMPFS_ADOPT, the
 * daemon's pid. 0 to 2 are inherited; every other descriptor is closed, and signals are as at
 * login. A process that forks without exec must close these: a forgotten copy of /dev/fuse keeps a
 * dead connection alive.
 */
#ifndef RAMP_KEEPER_PROTOCOL_H
#define RAMP_KEEPER_PROTOCOL_H

#define KEEPER_FD_FUSE	   3
#define KEEPER_FD_CONTROL  4
#define KEEPER_FD_SESSIONS 5
#define KEEPER_FD_LOCK	   6
#define KEEPER_FD_FDSTORE  7 /* and the next number */
#define KEEPER_FD_LAST	   8

#define KEEPER_FD_FIRST KEEPER_FD_FUSE
#define KEEPER_FDS	(KEEPER_FD_LAST - KEEPER_FD_FIRST + 1)

#define KEEPER_ENV_CONNECTION "RAMPFS_CONNECTION"
#define KEEPER_ENV_ADOPT      "RAMPFS_ADOPT"

/* On KEEPER_FD_CONTROL: one byte a message; a text follows one of them. */
#define KEEPER_SAY_SERVING 'R' /* daemon: requests are answered */
#define KEEPER_SAY_GONE	   'G' /* daemon: the mount is gone; do not start another one */
/* Daemon, then the error's text: it ends, and has never served. Keeper to stand-in: the same of the
   last daemon. */
#define KEEPER_SAY_FAILED  'F'
#define KEEPER_SAY_END	   'E' /* keeper: end now, the mount goes */
#define KEEPER_SAY_UPGRADE 'U' /* keeper: end, another daemon takes over */
#define KEEPER_SAY_SESSIONS                                                                        \
	'S' /* keeper, with a descriptor: a new listening session socket, in the place of fd 5, \
	       whose name is gone. daemon: it has that */

/* The exit status of a daemon that could not serve. */
#define KEEPER_EXIT_FATAL 3

#endif
