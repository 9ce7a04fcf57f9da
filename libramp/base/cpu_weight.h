/*
 * The CPU weight of the threads that move pages.
 *
 * A segment is moved off a machine because that is busy, and until its last page has come it
 * depends on two machines. So threads that move pages go before programs of normal priority; for a
 * program's page fault they go before all of them (kernel_rt_boost). The scheduler shares a
 * processor out among sessions first (autogroup, sched(7)), each of which has a nice value of its
 * own, and then among a session's threads. Both are set here: the thread's nice value for good, and
 * the session's only while pages move, as it applies to all that the daemon does. (Four programs
 * and a reader beside pulls, two processors: the thread's value alone changes nothing; with both,
 * pulls are 1.6 times as fast and page faults take a fifth less.)
 *
 * Nothing is changed for a session that is not the node's own, such as one begun in a user's
 * terminal, and no session gets less than it had. Nothing here is an error: without CAP_SYS_NICE,
 * or where a cpu cgroup or no autogroup at all decides, the share is what it is.
 */
#ifndef RAMP_CPU_WEIGHT_H
#define RAMP_CPU_WEIGHT_H

#include <stdbool.h>

#define CPU_WEIGHT_NICE (-15)

/* Tells all descendants, by the environment, whether this process leads its session. Called before
   the first daemon starts. */
void cpu_weight_session(void);

/* Sets the nice value, -20 to 19, to use instead of CPU_WEIGHT_NICE. Called once, before there are
   threads. Undoes the session value that a daemon left when it was killed while pages moved. */
void cpu_weight_set(int nice);

/* Makes the calling thread one that moves pages: for this node, or (`answers`) also for nodes that
   wait for it; the latter never goes behind programs. */
void cpu_weight_thread(bool answers);

/* Counts a move of pages that begins or, with false, one that is over. Any thread. */
void cpu_weight_group(bool move);

#endif
