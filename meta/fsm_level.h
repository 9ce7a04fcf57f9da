/*
 * The level of the rules (meta.h, META_LEVEL_KNOWN), and the entries that this program knows.
 */
#ifndef RAMP_META_FSM_LEVEL_H
#define RAMP_META_FSM_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

#include "fsm_core.h"

int fsm_level_up(struct apply *a);

/* Reads the level of the tables. Returns 0 or -EIO. */
int fsm_level(struct journal *j, uint64_t *level);
/* Returns 0 where the tables' level has such commands; -EOPNOTSUPP, or -EIO. */
int fsm_check_level(struct journal *j, const struct meta_command *c);
/* Decodes a command's entry. Returns false where this program does not know it. */
bool fsm_decode(const struct raft_entry *entry, struct meta_origin *origin, struct meta_command *c);
/* Returns true where this program can apply the entry. */
bool fsm_knows(const struct raft_entry *entry);
/* Each writes the reason why this program stops: an entry, or a level. */
void fsm_word_unknown(uint64_t index, char *text, size_t cap);
void fsm_word_level(uint64_t level, char *text, size_t cap);

#endif
