/*
 * .ramp/segments, read: the number of the text, a line of names, a line a segment, the number
 * again.
 */
#include "list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

#define EXPORT	  __attribute__((visibility("default")))
#define TRIES	  5 /* to read one text whole */
#define FIELD_MAX 64

/* Which column has what; -1: none. */
struct columns {
	int node, name, size, id, addr, extent, resident, state, source, target, epoch;
};

/* What `each` of list_each gets. */
struct listed {
	struct ramp_info info; /* first */
	uint64_t epoch;	       /* of its row; 0: not shown */
};

/* ---- a line --------------------------------------------------------------------------------- */

static int split(char *line, char *fields[FIELD_MAX])
{
	int n = 0;

	while (line && n < FIELD_MAX)
		fields[n++] = strsep(&line, "\t");
	return n;
}

static void read_columns(char *line, struct columns *c)
{
	struct {
		const char *name;
		int *at;
	} known[] = {
		{"node", &c->node},
		{"name", &c->name},
		{"size", &c->size},
		{"id", &c->id},
		{"addr", &c->addr},
		{"extent", &c->extent},
		{"resident_bytes", &c->resident},
		{"state", &c->state},
		{"source", &c->source},
		{"target", &c->target},
		{"epoch", &c->epoch},
	};
	char *fields[FIELD_MAX];
	int n = split(line, fields);

	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
		*known[k].at = -1;
		for (int i = 0; i < n; i++)
			if (strcmp(fields[i], known[k].name) == 0)
				*known[k].at = i;
	}
}

static const char *field(char *const *fields, int n, int at)
{
	return at >= 0 && at < n ? fields[at] : "";
}

static uint64_t number(const char *text)
{
	return strtoull(text, NULL, 0);
}

/* Copies a name; "none" becomes "". */
static void copy_node(char to[RAMP_API_NODE_MAX + 1], const char *name)
{
	snprintf(to, RAMP_API_NODE_MAX + 1, "%s", strcmp(name, "none") ? name : "");
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A byte that a terminal might not show stands there as \xHH, and so does a backslash. */
static void copy_name(char to[RAMP_API_NAME_MAX + 1], const char *from)
{
	size_t used = 0;

	while (*from && used < RAMP_API_NAME_MAX) {
		if (from[0] == '\\' && from[1] == 'x' && hex(from[2]) >= 0 && hex(from[3]) >= 0) {
			to[used++] = (char)(hex(from[2]) * 16 + hex(from[3]));
			from += 4;
		} else {
			to[used++] = *from++;
		}
	}
	to[used] = '\0';
}

/* Copies its first words: what follows a comma is a figure. */
static void copy_state(struct ramp_info *out, const char *state)
{
	snprintf(out->state, sizeof(out->state), "%.*s", (int)strcspn(state, ","), state);
}

static void list_read_line(char *line, const struct columns *c, struct listed *listed)
{
	struct ramp_info *out = &listed->info;
	char *fields[FIELD_MAX];
	int n = split(line, fields);

	memset(listed, 0, sizeof(*listed));
	listed->epoch = number(field(fields, n, c->epoch));
	out->id = number(field(fields, n, c->id));
	out->size = number(field(fields, n, c->size));
	out->extent = number(field(fields, n, c->extent));
	out->addr = number(field(fields, n, c->addr));
	out->resident = number(field(fields, n, c->resident));
	copy_node(out->node, field(fields, n, c->node));
	copy_node(out->source, field(fields, n, c->source));
	copy_node(out->target, field(fields, n, c->target));
	copy_name(out->name, field(fields, n, c->name));
	copy_state(out, field(fields, n, c->state));
}

/* ---- the text ------------------------------------------------------------------------------- */

/* Returns whether its last line is its first again: else a part of it is of another text. */
static bool is_whole(const char *text)
{
	size_t first = strcspn(text, "\n"), len = strlen(text);

	return first && len > first + 1 && text[first] == '\n' && len >= 2 * (first + 1) &&
	       memcmp(text, text + len - first - 1, first + 1) == 0 &&
	       text[len - first - 2] == '\n';
}

static char *read_whole(const struct ramp_cluster *ramp)
{
	for (int i = 0; i < TRIES; i++) {
		char *text = handle_read(ramp, "segments");

		if (!text)
			return NULL;
		if (is_whole(text))
			return text;
		free(text);
	}
	errno = EIO;
	return NULL;
}

/* Returns what `each` returned last, or a negative errno. */
static int list_each(const struct ramp_cluster *ramp,
		     int (*each)(void *arg, const struct ramp_info *info), void *arg)
{
	char *text = read_whole(ramp), *rest = text, *line;
	struct listed listed;
	struct columns columns;
	int rc = 0;

	if (!text)
		return -errno;
	strsep(&rest, "\n");
	read_columns(strsep(&rest, "\n"), &columns);
	while (!rc && (line = strsep(&rest, "\n")) && rest && *rest) {
		list_read_line(line, &columns, &listed);
		rc = each(arg, &listed.info);
	}
	free(text);
	return rc;
}

/* ---- one column ------------------------------------------------------------------------------ */

static int find_column(char *const *names, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

int list_column(const struct ramp_cluster *ramp, uint64_t id, const char *column, char *out,
		size_t len)
{
	char *text = read_whole(ramp), *rest = text, *line;
	char *names[FIELD_MAX], *fields[FIELD_MAX];
	int rc = -ENOENT, n, id_at, at;

	if (!text)
		return -errno;
	strsep(&rest, "\n");
	n = split(strsep(&rest, "\n"), names);
	id_at = find_column(names, n, "id");
	at = find_column(names, n, column);
	while (rc == -ENOENT && (line = strsep(&rest, "\n")) && rest && *rest) {
		n = split(line, fields);
		if (number(field(fields, n, id_at)) != id)
			continue;
		snprintf(out, len, "%s", field(fields, n, at));
		rc = 0;
	}
	free(text);
	return rc;
}

/* ---- finding -------------------------------------------------------------------------------- */

struct wanted {
	uint64_t id;
	const char *name;
	uint64_t epoch;
	bool later; /* its row's epoch is a later one, or is not shown */
	struct ramp_info *out;
};

static int find_one(void *arg, const struct ramp_info *info)
{
	const struct listed *listed = (const struct listed *)info;
	struct wanted *wanted = arg;

	if (wanted->id ? info->id != wanted->id : strcmp(info->name, wanted->name) != 0)
		return 0;
	*wanted->out = *info;
	wanted->later = !listed->epoch || listed->epoch > wanted->epoch;
	return 1;
}

int list_find(struct ramp_cluster *ramp, uint64_t id, const char *name, struct ramp_info *out)
{
	struct wanted wanted = {.id = id, .name = name, .out = out};
	int rc = list_each(ramp, find_one, &wanted);

	return rc == 1 ? 0 : rc ? rc : -ENOENT;
}

int list_find_later(struct ramp_cluster *ramp, uint64_t id, uint64_t epoch, struct ramp_info *out)
{
	struct wanted wanted = {.id = id, .epoch = epoch, .out = out};
	int rc = list_each(ramp, find_one, &wanted);

	return rc == 1 ? (wanted.later ? 0 : -EAGAIN) : rc ? rc : -ENOENT;
}

struct filter {
	const char *node;
	int (*each)(void *arg, const struct ramp_info *info);
	void *arg;
	int stopped; /* what `each` returned */
};

/* A segment that moves to the node is in doubt for it, too. */
static int filter_one(void *arg, const struct ramp_info *info)
{
	struct filter *f = arg;

	if (f->node && strcmp(info->node, f->node) != 0 && strcmp(info->target, f->node) != 0)
		return 0;
	f->stopped = f->each(f->arg, info);
	return f->stopped != 0;
}

static bool node_exists(const struct ramp_cluster *ramp, const char *node)
{
	char *text = handle_read(ramp, "nodes"), *rest = text, *line;
	bool found = false;

	while (rest && (line = strsep(&rest, "\n"))) {
		size_t len = strcspn(line, " ");

		found |= len && strlen(node) == len && strncmp(line, node, len) == 0;
	}
	free(text);
	return found;
}

EXPORT int ramp_list(struct ramp_cluster *ramp, const char *node,
		     int (*each)(void *arg, const struct ramp_info *info), void *arg)
{
	struct filter filter = {.node = node, .each = each, .arg = arg};
	int rc;

	if (node && !node_exists(ramp, node))
		return error_set(ENOENT, node, "there is no such node");
	rc = list_each(ramp, filter_one, &filter);
	if (rc < 0)
		return error_set(-rc, "ramp_list", NULL);
	error_none();
	return filter.stopped;
}
