/*
 * How messages of Raft are called in what a failed test prints.
 */
#ifndef RAMP_MESSAGE_NAME_H
#define RAMP_MESSAGE_NAME_H

#include "meta/raft.h"

static inline const char *message_name(enum raft_message_type type)
{
	static const char *const names[] = {
		"?",
		"PREVOTE",
		"PREVOTE_ANSWER",
		"VOTE",
		"VOTE_ANSWER",
		"APPEND",
		"APPEND_ANSWER",
		"SNAPSHOT",
		"SNAPSHOT_ANSWER",
		"TIMEOUT_NOW",
	};

	return names[type];
}

#endif
