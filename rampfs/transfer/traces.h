/*
 * Traces of migrations (rampfs-migrate --trace).
 */
#ifndef RAMP_TRACES_H
#define RAMP_TRACES_H

#include "move.h"

/* An attempt begins at this end: it is traced from now on where the request, or CONNECT, wants
   it. */
void trace_source(struct move *m, bool wanted);
void trace_target(struct move *m);

/* The two ways back to the request `handle`, which may have ended. */
typedef void trace_show(struct transfers *t, uint64_t handle, const struct transfer_step *step);
typedef void trace_answer(struct transfers *t, uint64_t handle, int result, const char *text);
/* The answer is known. True: `show` is called for the steps of both ends, then `answer`. */
bool trace_collect(struct move *m, uint64_t handle, int result, const char *text, trace_show *show,
		   trace_answer *answer);
/* A STEP has come. True: it belongs to a trace that is collected here. */
bool trace_take_step(struct transfers *t, ramp_node_t from, const struct msg_step *s);
void traces_close(struct transfers *t);
void traces_listen(struct transfers *t);

#endif
