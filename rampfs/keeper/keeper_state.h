/*
 * The state of the keeper process.
 */
#ifndef RAMP_KEEPER_STATE_H
#define RAMP_KEEPER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper.h"

struct keeper {
	const struct keeper_config *config;
	int fuse, sessions, lock, control, signals, fdstore[2];
	int sessions_new; /* keeper_name.c; -1: none */
	dev_t name_dev;	  /* of the file that is the name of `sessions` */
	ino_t name_ino;	  /* 0: unknown, or none */
	bool name_said;	  /* logged that the name is gone for now */
	uint64_t look_at_ms;
	pid_t pid;
	int pidfd;			   /* -1: no daemon runs */
	bool child;			   /* not adopted: has an exit status */
	bool standing_in;		   /* pid is the stand-in, no daemon */
	bool served;			   /* by this daemon or an earlier one */
	bool ending;			   /* SIGTERM or SIGINT has come */
	bool gone;			   /* the daemon said that the mount is gone */
	char failure[RAMP_ERR_TEXT_BYTES]; /* the daemon's message why it could not serve */
	unsigned quick, starts, unserved;  /* unserved: daemons in a row that never served */
	uint64_t serving_since_ms;	   /* 0: this daemon does not serve yet */
	uint64_t start_at_ms, kill_at_ms;  /* 0: not */
};

#endif
