/*
 * Messages to systemd by its own datagram socket (sd_notify(3)'s protocol). Nothing is sent where
 * systemd did not start us.
 */
#ifndef RAMP_NOTIFY_H
#define RAMP_NOTIFY_H

/* Sends `state`: one or more lines NAME=VALUE, as in sd_notify(3). Never blocks. */
void notify_systemd(const char *state);
/* Sends RELOADING=1, with the time that belongs to it. */
void notify_reloading(void);

#endif
