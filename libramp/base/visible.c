#include "visible.h"

#include <stdio.h>
#include <string.h>

size_t visible_utf8(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (s[0] > 0xf4 || (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

size_t visible_length(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t len = visible_utf8(text);

	if (s[0] < ' ' || s[0] == 0x7f || (len == 2 && s[0] == 0xc2 && s[1] < 0xa0))
		return 0;
	/* Not part of a character: 0 for a byte of C1; other bytes terminals show as they can. */
	return len ? len : s[0] >= 0xa0;
}

void visible(char *out, size_t cap, const char *text)
{
	size_t used = 0, len;

	for (; *text; text += len ? len : 1) {
		len = visible_length(text);
		if (used + (len ? len : 4) >= cap)
			break;
		if (len)
			memcpy(out + used, text, len);
		else
			snprintf(out + used, cap - used, "\\x%02x", (unsigned char)*text);
		used += len ? len : 4;
	}
	out[used] = 0;
}
