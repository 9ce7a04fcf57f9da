/*
 * The fdstore: what this daemon leaves to the next one (fdstore.c). Called by one of the workers,
 * or at the daemon's end.
 */
#ifndef RAMP_PROGRAMS_FDSTORE_H
#define RAMP_PROGRAMS_FDSTORE_H

struct programs;
struct client;

/* Puts an orphan into the fdstore, where the next daemon finds it (sets `stored`); fdstore_drop
   takes it off again. */
void fdstore_put(struct client *client);
void fdstore_drop(struct client *client);
/* Takes what the daemon before put there: `adopt` gets each as an orphan, DEAD, with a
   reference. */
void fdstore_adopt(struct programs *p, void (*adopt)(struct client *client));

#endif
