/*
 * A segment's last hand-over: the words of .ramp/segments' column last_move.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "list.h"

#define EXPORT __attribute__((visibility("default")))

static const struct {
	const char *name;
	size_t at; /* of a uint64_t in struct ramp_last_move */
} numbers[] = {
	{"at_ms", offsetof(struct ramp_last_move, at_ms)},
	{"connect_us", offsetof(struct ramp_last_move, connect_us)},
	{"rounds_us", offsetof(struct ramp_last_move, rounds_us)},
	{"prepare_us", offsetof(struct ramp_last_move, prepare_us)},
	{"asked_us", offsetof(struct ramp_last_move, asked_us)},
	{"window_us", offsetof(struct ramp_last_move, window_us)},
	{"pull_us", offsetof(struct ramp_last_move, pull_us)},
	{"round_pages", offsetof(struct ramp_last_move, round_pages)},
	{"window_pages", offsetof(struct ramp_last_move, window_pages)},
	{"demand_pages", offsetof(struct ramp_last_move, demand_pages)},
	{"prefetch_pages", offsetof(struct ramp_last_move, prefetch_pages)},
	{"hole_pages", offsetof(struct ramp_last_move, hole_pages)},
	{"local_pages", offsetof(struct ramp_last_move, local_pages)},
	{"lost_pages", offsetof(struct ramp_last_move, lost_pages)},
};

static void last_move_number(struct ramp_last_move *out, const char *name, const char *value)
{
	uint64_t number = strtoull(value, NULL, 10);

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		if (strcmp(numbers[i].name, name) == 0)
			memcpy((char *)out + numbers[i].at, &number, sizeof(number));
}

/* Takes "NAME=VALUE", and passes over words that a later version may have. */
static void last_move_word(struct ramp_last_move *out, char *word)
{
	char *value = strchr(word, '=');

	if (!value)
		return;
	*value++ = '\0';
	if (strcmp(word, "from") == 0)
		snprintf(out->from, sizeof(out->from), "%s", value);
	else if (strcmp(word, "to") == 0)
		snprintf(out->to, sizeof(out->to), "%s", value);
	else if (strcmp(word, "transport") == 0)
		snprintf(out->transport, sizeof(out->transport), "%s", value);
	else
		last_move_number(out, word, value);
	out->measured |= strcmp(word, "window_us") == 0;
	out->whole |= strcmp(word, "pull_us") == 0;
}

EXPORT int ramp_last_move(struct ramp_cluster *ramp, uint64_t id, struct ramp_last_move *out)
{
	char words[1024] = "", *rest = words, *word;
	int rc = list_column(ramp, id, "last_move", words, sizeof(words));

	memset(out, 0, sizeof(*out));
	if (rc)
		return error_set(-rc, "ramp_last_move",
				 rc == -ENOENT ? "there is no segment of that number" : NULL);
	if (!words[0])
		return error_set(EOPNOTSUPP, "ramp_last_move", "the daemon is of an older version");
	while ((word = strsep(&rest, " ")))
		last_move_word(out, word);
	if (!out->to[0])
		return error_set(ENODATA, "ramp_last_move",
				 "this node has heard of no move of it since its daemon began");
	return error_none();
}
