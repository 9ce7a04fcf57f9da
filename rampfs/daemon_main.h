/*
 * --daemon and --stand-in: the processes that the keeper executes.
 */
#ifndef RAMP_DAEMON_MAIN_H
#define RAMP_DAEMON_MAIN_H

struct daemon_options;

/* Runs the daemon (daemon.h). Returns the exit status, for the keeper. */
int daemon_main(const struct daemon_options *o, int argc, char **argv);
/* The same for --stand-in (mount/stand_in.h). */
int stand_in_main(const struct daemon_options *o);

#endif
