/*
 * The source's end up to ACCEPT, and how it gives up before GIVEN.
 */
#ifndef RAMP_SOURCE_CONNECT_H
#define RAMP_SOURCE_CONNECT_H

#include "move.h"

/* Begins a move for `req`, which is answered whatever happens. Takes the reference `seg`. */
void source_start(struct transfers *t, struct move_request *req, const struct segment_row *row,
		  struct seg *seg);
/* Begins an attempt of a move whose mode and target are set, from MOVE_NEW or the state `from`. */
void source_begin(struct move *m, enum move_state from, uint64_t row_epoch);
/* Begins another attempt at the same request, from the state `from`; or answers why not. */
void source_again(struct move *m, enum move_state from);
/* S_CONNECTING: ends where the row is MOVING in another attempt. */
void source_connecting_look(struct move *m);
/* From S_CONNECTED: asks the target again whether it has room. */
void source_connect_again(struct move *m);
/* S_CONNECTING: repeats CONNECT, or gives up. */
void source_connecting_tick(struct move *m);
void source_connect_listen(struct transfers *t);

/* ---- giving up ------------------------------------------------------------------------------- */

/* Sets why the move is given up. */
__attribute__((format(printf, 3, 4))) void source_fail(struct move *m, int code, const char *fmt,
						       ...);
/* Answers as source_fail has set and ends; `m` is in a state that has no row. */
void source_fail_now(struct move *m);
/* R4: a prepare was, or may have been, committed. Aborts it; source_fail has set why. */
void source_give_up(struct move *m);
/* Ends the watch of stores, and the target reads no more: for move_work. */
void source_end_rounds(struct move *m);
/* Ends the move, has an earlier attempt's prepare aborted first, and tries the request again. */
void source_prepare_late(struct move *m);
void source_say_close(struct move *m);
/* Tells the request the state that the move is in. */
void source_show_state(struct move *m);

#endif
