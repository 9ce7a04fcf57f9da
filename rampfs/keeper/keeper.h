/*
 * What keeper and daemon say to each other on KEEPER_FD_CONTROL: one byte a message; behind one of
 * them a text.
 */
#ifndef RAMP_KEEPER_H
#define RAMP_KEEPER_H

#define KEEPER_SAY_SERVING 'R' /* daemon: requests are answered */
#define KEEPER_SAY_GONE	   'G' /* daemon: the mount is gone; do not start another one */
#define KEEPER_SAY_FAILED  'F' /* daemon, then why: it ends, and has never served */
#define KEEPER_SAY_END	   'E' /* keeper: end now, the mount goes */
#define KEEPER_SAY_UPGRADE 'U' /* keeper: end, another daemon takes over */

#define KEEPER_ENV_CONNECTION "RAMPFS_CONNECTION"
#define KEEPER_ENV_ADOPT      "RAMPFS_ADOPT"

#define KEEPER_OOM_KEEPER "-1000"
#define KEEPER_OOM_DAEMON "-900"

#endif
