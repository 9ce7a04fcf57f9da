/*
 * A note about a segment, kept beside its bytes for the floor that knows its row. This folder does not
 * read it.
 *
 * Thread-safety: the control loop writes it, and any thread the first one; at a start any thread reads it.
 */
#ifndef RAMP_MEMORY_ABOUT_H
#define RAMP_MEMORY_ABOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seg;

#define SEG_ABOUT_MAX 504 /* bytes */

/* Replaces the note. A daemon killed within it leaves none. `len` 0: there is none any more. */
void seg_note_about(struct seg *seg, const void *bytes, size_t len);
/* The same by the thread that makes the segment: where there is a note already, that is newer. */
void seg_note_about_first(struct seg *seg, const void *bytes, size_t len);
/* Returns the note's length; 0: there is none. */
size_t seg_about(struct seg *seg, uint8_t bytes[SEG_ABOUT_MAX]);
/* Whether there is one, without opening a segment at rest. */
bool seg_has_about(struct seg *seg);

/* For this folder alone: looks at the header of a segment that is being found. */
void about_load(struct seg *seg);

#endif
