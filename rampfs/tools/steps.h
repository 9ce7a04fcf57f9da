/* The table of rampfs-migrate --trace: steps as they come from the daemon, printed at the end. */
#ifndef RAMP_STEPS_H
#define RAMP_STEPS_H

#include <stddef.h>

#include "base/session.h"

#define STEPS_MAX 512u

struct shown_step {
	uint64_t at_ns, page; /* page: STEP's `all` */
	char node[RAMP_NODE_NAME_MAX + 1];
	char text[SESSION_TEXT_MAX];
};

struct steps {
	struct shown_step *all; /* owned; NULL: none */
	size_t n;
};

/* Keeps a STEP; drops it where there is no room or memory. */
void steps_add(struct steps *steps, const struct session_msg *msg);
/* Prints remarks, the transfer and each page fault to stdout. Frees the steps. */
void steps_print(struct steps *steps, const char *file);

#endif
