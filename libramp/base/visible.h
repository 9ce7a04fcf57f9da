/*
 * Names that another user has chosen, in a line of output: a segment's name may hold any byte, and
 * must neither pass for a line of its own nor control a terminal.
 */
#ifndef RAMP_VISIBLE_H
#define RAMP_VISIBLE_H

#include <stddef.h>

/* Returns how many bytes the UTF-8 character at `s` takes; 0: there is none (RFC 3629). */
size_t visible_utf8(const char *s);

/* Returns how many bytes at `s` (not its end) can be shown as they are. 0: the first must be shown
   as \xHH: it is of a control character of ASCII, or of C1 of ISO 6429, as one byte or in UTF-8. */
size_t visible_length(const char *s);

/* Writes `text` in that form. It is cut if it does not fit. */
void visible(char *out, size_t cap, const char *text);

#endif
