/*
 * Shared by the files of stories about the transfer.
 */
#ifndef TRANSFER_STORIES_H
#define TRANSFER_STORIES_H

#include <check.h>

#include "transfer_world.h"

enum { A = 1, B = 2, C = 3 };

/* A case of stories, each in a world of its own. */
TCase *story(Suite *suite, const char *name);
TCase *precopy_story(Suite *suite, const char *name);
TCase *copy_story(Suite *suite, const char *name); /* of mode copy */
/* At rest, with `owner` as it was. */
void stays(ramp_segment_t id, ramp_node_t owner);
double seconds(void);

/* transfer_asks.c */
void add_ask_stories(Suite *suite);

/* transfer_steps.c */
void add_steps_stories(Suite *suite);
void add_precopy_steps_stories(Suite *suite);

/* transfer_departs.c */
void add_depart_stories(Suite *suite);
void add_precopy_depart_stories(Suite *suite);

/* transfer_prefills.c */
void add_prefill_stories(Suite *suite);

/* transfer_kills.c */
void add_kill_stories(Suite *suite);
void add_copy_kill_stories(Suite *suite);
void add_precopy_kill_stories(Suite *suite);

#endif
