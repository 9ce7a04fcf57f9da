/*
 * The share of the processors that those threads have which move pages.
 *
 * A segment is moved off a machine because that is busy, and until its last page has come it hangs
 * on two machines: so who moves pages goes before programs of normal priority, but for a program's
 * sake (a page fault) before all of them (kernel_rt_boost). The scheduler shares a processor out among
 * sessions first (autogroup, sched(7)), each of which has a nice value of its own, and then among a
 * session's threads. Both are set here: the thread's for good, and the session's while pages move
 * and no longer, as it counts for all that the daemon does. (Four programs and a reader beside
 * pulls, two processors: the thread's alone changes nothing; with both, pulls are 1.6 times as fast
 * and page faults take a fifth less.)
 *
 * Of a session that is not the node's own, which has begun in somebody's terminal, nothing is
 * changed, and none gets less than it had. Nothing here is an error: without CAP_SYS_NICE, or where
 * a cpu cgroup or no autogroup at all decides, the share is what it is.
 */
#ifndef RAMP_CPU_WEIGHT_H
#define RAMP_CPU_WEIGHT_H

#include <stdbool.h>

#define CPU_WEIGHT_NICE (-15)

/* Before the first daemon: whether this process leads its session is told to all that come of it. */
void cpu_weight_session(void);

/* The nice value, -20 to 19, instead of CPU_WEIGHT_NICE. Once, before there are threads; undoes what a
   daemon left that was killed while pages moved. */
void cpu_weight_set(int nice);

/* The calling thread is one of those from now on: of what the node wants itself, or (`answers`) also
   of what others wait for, which never goes behind programs. */
void cpu_weight_thread(bool answers);

/* Pages move; or, with false, a former call's have come. Any thread. */
void cpu_weight_group(bool move);

#endif
