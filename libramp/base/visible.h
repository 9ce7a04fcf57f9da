/*
 * What somebody else has named, in a line of ours: a segment's name may hold any byte, and must
 * neither pass for a line of its own nor tell a terminal what to do.
 */
#ifndef RAMP_VISIBLE_H
#define RAMP_VISIBLE_H

#include <stddef.h>

/* How many bytes the UTF-8 character at `s` takes; 0: there is none (RFC 3629). */
size_t visible_utf8(const char *s);

/* How many bytes at `s` (not its end) can be shown as they are. 0: the first is to be shown as
   \xHH, being of a control character of ASCII, or of ISO 6429's C1, as one byte or in UTF-8. */
size_t visible_length(const char *s);

/* `text` so shown. Cut where it does not fit. */
void visible(char *out, size_t cap, const char *text);

#endif
