/*
 * The changes of a fork's child in the table that it has from its parent.
 *
 * In the child's only thread, with the attach lock; each takes the table's lock but
 * fork_child_unmap.
 */
#ifndef RAMP_FORK_CHILD_H
#define RAMP_FORK_CHILD_H

/* Takes out every range that the program has replaced by a mapping of its own. Before anything
   of a segment is mapped. */
void fork_child_forget_replaced(void);
/* Gives the ranges of that agent's daemon the protection of the parent, and takes out those that
   are not mapped after all. */
void fork_child_forget_missing(int session);
/* Unmaps the ranges that the agent's daemon had us map before it died; the table keeps them. */
void fork_child_unmap(int session);
/* Unmaps them and takes them out. */
void fork_child_forget_all(int session);

#endif
