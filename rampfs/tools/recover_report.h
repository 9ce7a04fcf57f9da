/*
 * What a recovery keeps, and what may be lost by it, in words.
 */
#ifndef RAMP_TOOLS_RECOVER_REPORT_H
#define RAMP_TOOLS_RECOVER_REPORT_H

#include "certificate.h"
#include "meta/recovery.h"

/* Prints it; `members` has the fate of each. -EIO: the journal can't be read. */
int recover_report(struct recovery *r, const struct certificate *members, const char *state_dir);

#endif
