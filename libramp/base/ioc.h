/*
 * The ioctls that files and directories under a rampfs mount answer.
 */
#ifndef RAMP_IOC_H
#define RAMP_IOC_H

#include <linux/ioctl.h>
#include <stdint.h>

#define RAMP_SOCKET_PATH_MAX 107

/* On an open segment: returns a one-time token for this open, and the path of the session socket. */
struct ramp_ioc_attach {
	uint64_t token[2];
	uint64_t segment;
	char socket[RAMP_SOCKET_PATH_MAX + 1];
};

/* On any file or directory of the mount: returns its nodeid, the arena and the socket. */
struct ramp_ioc_info {
	uint64_t arena_addr, arena_len;
	uint64_t nodeid; /* the segment's id, or the directory's */
	char socket[RAMP_SOCKET_PATH_MAX + 1];
};

#define RAMP_IOC_ATTACH _IOR('R', 0x61, struct ramp_ioc_attach)
/* The same of a segment that is on its way here: for SESSION_AHEAD. */
#define RAMP_IOC_AHEAD _IOR('R', 0x63, struct ramp_ioc_attach)
#define RAMP_IOC_INFO  _IOR('R', 0x62, struct ramp_ioc_info)

#endif
