/*
 * In which mode a move goes, and why (source_mode.c).
 */
#ifndef RAMP_SOURCE_MODE_H
#define RAMP_SOURCE_MODE_H

#include "move.h"

/* Decides by the request, the segment's row, or the mount option. The move is new, and has its request. */
void source_mode_begin(struct move *m, const struct segment_row *row);
/* Returns how many ms are left for what comes before the hand-over: of a request with a deadline (mv) one half
   of its time. Without a deadline: UINT64_MAX. */
uint64_t source_mode_left_ms(const struct move *m);
/* Returns how many bytes a second the move is likely to get: of the link's speed, as it was measured or a guess, what
   limits, and others of the same request, leave. `known`: it was measured; may be NULL. */
uint64_t source_mode_carries(const struct move *m, bool *known);
/* Sets it; the words say why. Before prepare. */
__attribute__((format(printf, 3, 4))) void source_mode_set(struct move *m, enum transfer_mode mode,
							   const char *why, ...);
/* Adds to the words how it turned out. */
void source_mode_add(struct move *m, const char *how);
/* Takes back all that was added: another attempt begins. */
void source_mode_forget(struct move *m);

/* Writes words for a line of status: they may hold a process's name, and two spaces part fields there. */
void source_mode_words(char *out, size_t cap, const char *words);

#endif
