/*
 * Segments that are made with their addresses. See ops_alloc.h.
 */
#include "ops_alloc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "ops_create.h"
#include "request.h"

#define ALLOC_VALUE_MAX (RAMP_NAME_MAX + 128)
#define ALLOC_SIZE_MAX	((uint64_t)INT64_MAX - RAMP_PAGE_BYTES)

/* Takes "KEY=" and a number without sign off the text. */
static bool alloc_number(const char **text, const char *key, int base, uint64_t *out)
{
	size_t len = strlen(key);
	char *end;

	if (strncmp(*text, key, len) != 0 || (*text)[len] < '0' || (*text)[len] > '9')
		return false;
	errno = 0;
	*out = strtoull(*text + len, &end, base);
	if (errno || *end != ' ')
		return false;
	*text = end + 1;
	return true;
}

static bool alloc_pages(const char **text, uint8_t *out)
{
	static const char *const words[] = {[SEGMENT_PAGES_AUTO] = "pages=auto ",
					    [SEGMENT_PAGES_SMALL] = "pages=small ",
					    [SEGMENT_PAGES_HUGE] = "pages=huge "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strncmp(*text, words[i], strlen(words[i])) == 0) {
			*text += strlen(words[i]);
			*out = (uint8_t)i;
			return true;
		}
	return false;
}

static bool alloc_name(const char *text, char name[RAMP_NAME_MAX + 1])
{
	size_t len;

	if (strncmp(text, "name=", 5) != 0)
		return false;
	text += 5;
	len = strlen(text);
	if (!len || len > RAMP_NAME_MAX || strchr(text, '/') || !strcmp(text, ".") ||
	    !strcmp(text, ".."))
		return false;
	memcpy(name, text, len + 1);
	return true;
}

static bool alloc_parse(const char *text, struct meta_command *c)
{
	uint64_t mode;

	if (!alloc_number(&text, "size=", 10, &c->attr.size) ||
	    !alloc_number(&text, "extent=", 10, &c->attr.extent_asked) ||
	    !alloc_number(&text, "mode=", 8, &mode) || !alloc_pages(&text, &c->attr.pages) ||
	    !alloc_name(text, c->name))
		return false;
	c->attr.mode = (uint32_t)mode;
	return c->attr.size && c->attr.size <= ALLOC_SIZE_MAX && mode <= 07777;
}

/* Returns whether that may be asked for: a power of two from 64 MiB on, as by user.ramp.extent. */
static bool alloc_extent_ok(struct mount *m, uint64_t asked)
{
	uint64_t addr, len;

	if (!asked)
		return true;
	meta_arena(m->config.meta, &addr, &len);
	return asked >= RAMP_EXTENT_MIN && !(asked & (asked - 1)) && asked <= len;
}

void op_alloc(fuse_req_t req, fuse_ino_t node, const char *value, size_t size)
{
	struct meta_command c = {.flags = META_WITH_EXTENT};
	char text[ALLOC_VALUE_MAX];
	bool good = size < sizeof(text) && !memchr(value, 0, size);

	if (good) {
		memcpy(text, value, size);
		text[size] = 0;
		good = alloc_parse(text, &c) && alloc_extent_ok(mount_of(req), c.attr.extent_asked);
	}
	if (good)
		create_segment(req, node, c.name, &c, NULL);
	else
		fuse_reply_err(req, EINVAL);
}
