/*
 * A process of another user, which does one thing and then waits to be killed.
 */
#ifndef RAMP_STRANGER_H
#define RAMP_STRANGER_H

#include <sys/types.h>

#define STRANGER 1234u /* the other user */
#define DOORS	 16    /* slots at the broker that one user may have at a time */
#define PATIENCE 20000 /* milliseconds; then a test has failed */

struct stranger {
	pid_t pid;
	int from;
};

/* A file that root opens in the other process, before that becomes the user, and nowhere else;
   and its descriptor there. A process that has it open may hang when it ends. NULL: none. */
extern const char *stranger_file;
extern int stranger_has;

/* Starts the process, which calls act(arg). */
struct stranger stranger_start(uid_t uid, int (*act)(const void *arg), const void *arg);
/* Waits for act's result and returns it. */
int stranger_said(struct stranger *s);
/* Kills it. */
void stranger_end(struct stranger *s);

/* For act: connects to the daemon; connects and sends HELLO. */
int stranger_connect(void);
int stranger_hello(void);
/* For act: returns the result in WELCOME, with the broker's socket in *door; -EAGAIN: it has not
   come in `ms`. */
int stranger_welcome(int sock, int ms, int *door);

#endif
