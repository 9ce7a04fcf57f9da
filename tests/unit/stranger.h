/*
 * A process of another user, which does one thing and then stands still.
 */
#ifndef RAMP_STRANGER_H
#define RAMP_STRANGER_H

#include <sys/types.h>

#define STRANGER 1234u /* a user */
#define DOORS	 16    /* of one user at a time */
#define PATIENCE 20000 /* milliseconds; then a test has failed */

struct stranger {
	pid_t pid;
	int from;
};

/* What root opens for it there, and nowhere else, and its descriptor: whoever has the file may hang
   at his end. NULL: nothing. */
extern const char *stranger_file;
extern int stranger_has;

struct stranger stranger_start(uid_t uid, int (*act)(const void *arg), const void *arg);
/* What it found. */
int stranger_said(struct stranger *s);
void stranger_end(struct stranger *s);

/* In there. A connection to the daemon; one that has said HELLO. */
int stranger_connect(void);
int stranger_hello(void);
/* WELCOME's result, with the door; -EAGAIN: it has not come in that time. */
int stranger_welcome(int sock, int ms, int *door);

#endif
