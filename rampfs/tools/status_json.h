/*
 * rampfs-status --json: one object.
 */
#ifndef RAMP_STATUS_JSON_H
#define RAMP_STATUS_JSON_H

/* Prints the object. Returns 0, or the exit status 1 after a complaint. */
int status_json(const char *mount);

#endif
