/*
 * What this daemon leaves to the next one (fdstore.c). One of the workers, or the end of the
 * daemon.
 */
#ifndef RAMP_PROGRAMS_FDSTORE_H
#define RAMP_PROGRAMS_FDSTORE_H

struct programs;
struct space;

/* An orphan: the next daemon finds it there (stored is set); or not any more. */
void fdstore_put(struct space *client);
void fdstore_drop(struct space *client);
/* What a former daemon has put there: `adopt` gets each as an orphan, DEAD, with a reference. */
void fdstore_adopt(struct programs *p, void (*adopt)(struct space *client));

#endif
