/*
 * What tests of the shim share: programs that are started with it, beside a fake daemon.
 *
 * A test is a Check test case that driver_run runs. Needs root and /dev/fuse.
 */
#ifndef RAMP_SHIM_DRIVER_H
#define RAMP_SHIM_DRIVER_H

#include <check.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#define HANDED_FD 100 /* as the scenario "handed" has it */

struct program {
	pid_t pid;
	int to, from; /* its stdin and stdout */
};

/* Of the test that runs: its directory, the segment, and the file that is the program's stderr. */
extern char dir[64], file[96], errors[96];
extern struct fake *fake;

/* Of programs that are started. */
extern char run_path[PATH_MAX], prog_path[PATH_MAX];
extern bool own_namespace, elsewhere; /* with a user namespace of their own; where no mount is */
extern int stderr_fd;		      /* their stderr, if not -1 */
extern const char *wrapper;	      /* the program that starts rampfs-run, if not NULL */

struct program start_as(const char *scenario, uid_t uid);
struct program start(const char *scenario);
/* Waits until the program says where it is. */
void await(struct program *p, const char *where);
void go_on(struct program *p);
/* Waits until it has ended, with status 0. */
void finish(struct program *p);

/* Returns the text that the program and the shim wrote to stderr. */
const char *said(void);
int count_said(const char *what);

/* Runs the tests, each beside a fake daemon of its own. Returns main's status. */
int driver_run(const char *name, TCase *tc);

#endif
