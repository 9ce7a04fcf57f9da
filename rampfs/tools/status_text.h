/*
 * rampfs-status without --json: tables.
 */
#ifndef RAMP_STATUS_TEXT_H
#define RAMP_STATUS_TEXT_H

/* Prints the tables. Returns 0, or the exit status 1 after a complaint. */
int status_text(const char *mount);

#endif
