/*
 * rampfs-status [--json] [MOUNTPOINT]: what the node of a mount knows of its cluster.
 *
 * Happy path: MOUNT/.ramp/status and nodes, which the daemon makes in one go, as tables: what needs
 * somebody's attention comes first. With --json the facts as one object: nodes from .ramp/nodes,
 * segments from .ramp/segments, migrations from .ramp/status.
 *
 * How it fails: without MOUNTPOINT there must be exactly one rampfs mount. Two that read
 * .ramp/segments at a time may get parts of two texts: that is seen by its numbers, and read again.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/output.h"
#include "base/visible.h"
#include "find_mount.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

static const char usage[] =
	"usage: rampfs-status [--json] [MOUNTPOINT]\n"
	"Show what is lost or in doubt, nodes, segments, owners and migrations under way.\n"
	"\n"
	"  --json      as one JSON object\n"
	"  -h, --help  this text\n"
	"  --version   the version\n"
	"\n"
	"Without MOUNTPOINT: the one rampfs mount of this machine.\n";

/* ---- where ---------------------------------------------------------------------------------- */

/* A file of .ramp as a string, or NULL after a complaint. The caller frees. */
static char *read_text(const char *mount, const char *name)
{
	char path[PATH_MAX + 32], *text = NULL;
	size_t len = 0, cap = 0;
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/.ramp/%s", mount, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0) {
		if (cap - len < 65536) {
			char *grown = realloc(text, cap += 131072);

			if (!grown)
				break;
			text = grown;
		}
		n = read(fd, text + len, cap - len - 1);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && access(mount, F_OK) == 0) {
		fprintf(stderr, "rampfs-status: %s: is not a rampfs mount\n", mount);
	} else if (fd < 0 || n < 0 || !text) {
		fprintf(stderr, "rampfs-status: %s: %s\n", path, strerror(errno));
		free(text);
		text = NULL;
	} else {
		text[len] = 0;
	}
	if (fd >= 0)
		close(fd);
	return text;
}

/* ---- tables --------------------------------------------------------------------------------- */

#define COLUMNS 6
#define WIDEST	60 /* column, in characters */

struct table {
	const char *heads[COLUMNS]; /* NULL: no more columns */
	bool right[COLUMNS];
	char *(*rows)[COLUMNS]; /* owned, as each cell */
	size_t n;
};

static void add_row(struct table *t, const char *const cells[COLUMNS])
{
	void *grown = realloc(t->rows, (t->n + 1) * sizeof(*t->rows));

	if (!grown)
		return; /* a shorter table */
	t->rows = grown;
	for (int i = 0; i < COLUMNS; i++)
		t->rows[t->n][i] = strdup(cells[i] ? cells[i] : "");
	t->n++;
}

/* Of UTF-8: bytes that begin a character. */
static int width_of(const char *text)
{
	int width = 0;

	for (; text && *text; text++)
		width += (*text & 0xc0) != 0x80;
	return width;
}

static void put_cell(const char *text, int width, bool right, bool last)
{
	int pad = width > width_of(text) ? width - width_of(text) : 0;

	printf("%*s%s%*s%s", right ? pad : 0, "", text ? text : "", right || last ? 0 : pad, "",
	       last ? "\n" : "  ");
}

/* One long name does not push everybody's columns away: its own row is longer then. */
static int padded_width(int width)
{
	return width < WIDEST ? width : WIDEST;
}

static void put_table(struct table *t)
{
	int width[COLUMNS] = {0}, n = 0;

	for (; n < COLUMNS && t->heads[n]; n++) {
		width[n] = width_of(t->heads[n]);
		for (size_t row = 0; row < t->n; row++)
			if (padded_width(width_of(t->rows[row][n])) > width[n])
				width[n] = padded_width(width_of(t->rows[row][n]));
	}
	for (int i = 0; i < n; i++)
		put_cell(t->heads[i], width[i], t->right[i], i == n - 1);
	for (size_t row = 0; row < t->n; row++)
		for (int i = 0; i < n; i++)
			put_cell(t->rows[row][i], width[i], t->right[i], i == n - 1);
}

static void free_table(struct table *t)
{
	for (size_t row = 0; row < t->n; row++)
		for (int i = 0; i < COLUMNS; i++)
			free(t->rows[row][i]);
	free(t->rows);
}

/* Cuts a line of .ramp/status behind its last two spaces: a name in front may hold some, too. */
static char *cut_last(char *line)
{
	char *at = line + strlen(line);

	while (at > line + 1 && !(at[-1] == ' ' && at[-2] == ' '))
		at--;
	if (at <= line + 1)
		return NULL;
	at[-2] = 0;
	return at;
}

/* By what .ramp/status says of a segment, in which a node may be named, by any of these words. */
static bool is_trouble(const char *state)
{
	static const char *const states[] = {"lost", "in doubt", "rolled back", "damaged"};

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (strncmp(state, states[i], strlen(states[i])) == 0)
			return true;
	return strstr(state, ", source is silent") || strstr(state, " pages lost");
}

/* "A cache  1.0 GiB  pulling from a, 40 % here  at 0x2000..." */
static void segment_row(struct table *t, struct table *troubles, char *line)
{
	char *addr = cut_last(line), *state = addr, *size;

	if (addr && strncmp(addr, "at 0x", 5) == 0)
		state = cut_last(line);
	else
		addr = NULL;
	size = state ? cut_last(line) : NULL;
	if (!size) {
		if (strncmp(line, "... and ", 8) == 0)
			add_row(t, (const char *[COLUMNS]){line});
		return;
	}
	add_row(t, (const char *[COLUMNS]){line, size, state, addr ? addr + 3 : "-"});
	if (is_trouble(state))
		add_row(troubles, (const char *[COLUMNS]){line, state});
}

/* "cache  a -> b  moving  12 ms  (source)" */
static void migration_row(struct table *t, char *line)
{
	char *side = cut_last(line), *age = side ? cut_last(line) : NULL;
	char *state = age ? cut_last(line) : NULL, *nodes = state ? cut_last(line) : NULL;

	if (!nodes)
		return;
	side++;
	side[strcspn(side, ")")] = 0;
	add_row(t, (const char *[COLUMNS]){line, nodes, state, age, side});
}

/* As .ramp/status writes sizes. */
static void put_size(char *out, size_t cap, double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int unit = 0;

	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	snprintf(out, cap, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

/* "NAME voter up HOST:PORT capacity=N incarnation=HEX [leader] [here]" */
static void node_row(struct table *t, char *line)
{
	char *word[8] = {NULL}, *save, notes[64] = "", capacity[32] = "";
	int n = 0;

	for (char *w = strtok_r(line, " ", &save); w && n < 8; w = strtok_r(NULL, " ", &save))
		word[n++] = w;
	if (n < 6)
		return;
	if (strncmp(word[4], "capacity=", 9) == 0)
		put_size(capacity, sizeof(capacity), strtod(word[4] + 9, NULL));
	snprintf(notes, sizeof(notes), "%.20s%s%.20s", n > 6 ? word[6] : "", n > 7 ? ", " : "",
		 n > 7 ? word[7] : "");
	add_row(t, (const char *[COLUMNS]){word[0], word[1], word[2], word[3], capacity, notes});
}

struct tables {
	struct table nodes, segments, migrations, troubles;
};

/* The head's lines are printed as they come; the rest fills the tables. */
static void read_status(struct tables *t, char *status)
{
	enum { HEAD, OTHER, SEGMENTS, MIGRATIONS } section = HEAD;
	char *save;

	for (char *line = strtok_r(status, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "segments:", 9) == 0)
			section = SEGMENTS;
		else if (strncmp(line, "migrations:", 11) == 0)
			section = MIGRATIONS;
		else if (strncmp(line, "nodes:", 6) == 0)
			section = OTHER;
		else if (section == HEAD)
			puts(line);
		else if (section == SEGMENTS)
			segment_row(&t->segments, &t->troubles, line + strspn(line, " "));
		else if (section == MIGRATIONS && strncmp(line, "  ", 2) == 0)
			migration_row(&t->migrations, line + 2);
	}
}

static void put_section(struct table *t, const char *none)
{
	putchar('\n');
	if (t->n)
		put_table(t);
	else
		puts(none);
	free_table(t);
}

static int show_text(const char *mount)
{
	struct tables t = {
		.nodes = {{"NODE", "ROLE", "STATE", "ADDRESS", "CAPACITY", ""},
			  {[4] = true},
			  NULL,
			  0},
		.segments = {{"SEGMENT", "SIZE", "STATE", "AT"}, {[1] = true}, NULL, 0},
		.migrations = {{"MIGRATION", "FROM -> TO", "STATE", "SINCE", "THIS NODE IS"},
			       {[3] = true},
			       NULL,
			       0},
		.troubles = {{"LOST OR IN DOUBT", "WHY"}, {false}, NULL, 0},
	};
	char *status = read_text(mount, "status");
	char *nodes = status ? read_text(mount, "nodes") : NULL, *save;

	if (nodes) {
		read_status(&t, status);
		for (char *line = strtok_r(nodes, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			node_row(&t.nodes, line);
		put_section(&t.troubles, "nothing is lost or in doubt");
		put_section(&t.nodes, "no nodes");
		put_section(&t.segments, "no segments");
		put_section(&t.migrations, "no migrations under way on this node");
	}
	free(status);
	free(nodes);
	return nodes ? 0 : EXIT_FAILED;
}

/* ---- json ----------------------------------------------------------------------------------- */

/* A segment's name, which may be any bytes: JSON is UTF-8, so others are written \xHH, and so is a
   backslash: the bytes can be found again. */
static void add_name(cJSON *object, const char *name)
{
	char text[4 * NAME_MAX + 1];
	size_t used = 0, len;

	for (; *name && used + 4 < sizeof(text); name += len ? len : 1) {
		len = *name == '\\' ? 0 : visible_utf8(name);
		memcpy(text + used, name, len);
		used += len;
		if (!len)
			used += (size_t)snprintf(text + used, 5, "\\x%02x", (unsigned char)*name);
	}
	text[used] = 0;
	cJSON_AddStringToObject(object, "name", text);
}

/* "NAME voter up HOST:PORT capacity=N incarnation=HEX [leader] [here]" */
static void add_node(cJSON *nodes, char *line)
{
	static const char *const fields[] = {"name", "role", "state", "address"};
	cJSON *node = cJSON_CreateObject();
	char *save, *word = strtok_r(line, " ", &save);

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]) && word; i++) {
		cJSON_AddStringToObject(node, fields[i], word);
		word = strtok_r(NULL, " ", &save);
	}
	for (; word; word = strtok_r(NULL, " ", &save)) {
		if (strncmp(word, "capacity=", 9) == 0)
			cJSON_AddNumberToObject(node, "capacity_bytes", strtod(word + 9, NULL));
		else if (strncmp(word, "incarnation=", 12) == 0)
			cJSON_AddStringToObject(node, "incarnation", word + 12);
		else
			cJSON_AddBoolToObject(node, word, true);
	}
	cJSON_AddItemToArray(nodes, node);
}

static bool is_number(const char *s)
{
	char *end;

	if (*s < '0' || *s > '9' || strlen(s) > 15)
		return false; /* a larger one would lose digits in a double */
	strtoull(s, &end, 10);
	return *end == 0;
}

/* A node may be named 7, and is a string all the same. */
static bool counts(const char *key)
{
	static const char *const keys[] = {"id", "size", "epoch", "extent", "resident_bytes"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

static void add_fact(cJSON *segment, const char *key, const char *value)
{
	if (counts(key) && is_number(value))
		cJSON_AddNumberToObject(segment, key, strtod(value, NULL));
	else if (strcmp(key, "source_silent") == 0)
		cJSON_AddBoolToObject(segment, key, strcmp(value, "yes") == 0);
	else
		cJSON_AddStringToObject(segment, key, value);
}

/* \xNN becomes that byte, in place. */
static void unescape(char *text)
{
	char *to = text, digits[3] = "";

	for (char *from = text; *from; to++) {
		if (from[0] == '\\' && from[1] == 'x' && from[2] && from[3]) {
			memcpy(digits, from + 2, 2);
			*to = (char)strtoul(digits, NULL, 16);
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = 0;
}

#define MAX_KEYS 32

/* Cuts a line at its tabs; how many pieces. */
static int cut(char *line, char *pieces[MAX_KEYS])
{
	int n = 0;

	for (char *at; n < MAX_KEYS && (at = strsep(&line, "\t"));)
		pieces[n++] = at;
	return n;
}

static cJSON *make_segment(char *const keys[], int n, char *line)
{
	cJSON *segment = cJSON_CreateObject();
	char *values[MAX_KEYS];

	if (cut(line, values) < n)
		n = 0;
	for (int i = 0; i < n; i++) {
		if (strcmp(keys[i], "name") == 0) {
			unescape(values[i]);
			if (strlen(values[i]) <= NAME_MAX)
				add_name(segment, values[i]);
		} else if (strcmp(keys[i], "node") == 0) {
			cJSON_AddStringToObject(segment, "node", values[i]);
		} else {
			add_fact(segment, keys[i], values[i]);
		}
	}
	return segment;
}

/* .ramp/segments: a number, the columns' names, a line each, the number again. */
static bool whole(const char *text)
{
	size_t digits = strspn(text, "0123456789"), len = strlen(text);

	return digits && len > 2 * (digits + 1) && text[len - digits - 2] == '\n' &&
	       memcmp(text, text + len - digits - 1, digits + 1) == 0;
}

static bool add_segments(cJSON *segments, const char *mount)
{
	char *text = NULL, *save, *line, *next, *keys[MAX_KEYS];
	int n;

	for (int tries = 0; tries < 10; tries++) {
		free(text);
		text = read_text(mount, "segments");
		if (!text || whole(text))
			break;
	}
	if (!text || !whole(text)) {
		if (text)
			fprintf(stderr, "rampfs-status: %s/.ramp/segments: changes all the time\n",
				mount);
		free(text);
		return false;
	}
	strtok_r(text, "\n", &save);
	n = cut(strtok_r(NULL, "\n", &save), keys);
	line = strtok_r(NULL, "\n", &save);
	for (; line && (next = strtok_r(NULL, "\n", &save)); line = next)
		cJSON_AddItemToArray(segments, make_segment(keys, n, line));
	free(text);
	return true;
}

/* "  NAME  FROM -> TO  STATE  N ms  (source)", taken apart from its end: a name may hold anything.
 */
static void add_migration(cJSON *migrations, char *line)
{
	static const char *const fields[] = {"side", "age", "state", "nodes"};
	cJSON *migration = cJSON_CreateObject();
	char *at, *arrow;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		for (at = line + strlen(line); at > line && !(at[0] == ' ' && at[1] == ' '); at--)
			;
		if (at == line)
			break;
		*at = 0;
		if (at[2] == '(')
			at[strlen(at + 2) + 1] = 0;
		arrow = strstr(at + 2, " -> ");
		if (i == 3 && arrow) {
			*arrow = 0;
			cJSON_AddStringToObject(migration, "from", at + 2);
			cJSON_AddStringToObject(migration, "to", arrow + 4);
		} else if (i == 1) {
			cJSON_AddNumberToObject(migration, "age_ms", strtod(at + 2, NULL));
		} else {
			cJSON_AddStringToObject(migration, fields[i],
						at[2] == '(' ? at + 3 : at + 2);
		}
	}
	line += 2; /* and no more: a name may begin with spaces */
	unescape(line);
	add_name(migration, line);
	cJSON_AddItemToArray(migrations, migration);
}

/* "key: value" lines of the head become strings; the migrations' section an array. */
static void add_status(cJSON *root, char *status)
{
	cJSON *migrations = cJSON_AddArrayToObject(root, "migrations");
	enum { HEAD, OTHER, MIGRATIONS } section = HEAD;
	char *save, *value;

	for (char *line = strtok_r(status, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "  ", 2) == 0) {
			if (section == MIGRATIONS)
				add_migration(migrations, line);
			continue;
		}
		value = strstr(line, ": ");
		if (strncmp(line, "migrations:", 11) == 0) {
			section = MIGRATIONS;
		} else if (strncmp(line, "segments:", 9) == 0 || strncmp(line, "nodes:", 6) == 0) {
			section = OTHER;
		} else if (section == HEAD && value) {
			*value = 0;
			for (char *at = line; (at = strchr(at, ' '));)
				*at = '_';
			if (strcmp(line, "quorum") == 0)
				cJSON_AddBoolToObject(root, line, strcmp(value + 2, "yes") == 0);
			else
				cJSON_AddStringToObject(root, line, value + 2);
		}
	}
}

/* Segments whose bytes are lost, in doubt or not served: what stands first in the tables. */
static void add_attention(cJSON *root, const cJSON *segments)
{
	cJSON *attention = cJSON_AddArrayToObject(root, "attention"), *item;
	const cJSON *segment;

	cJSON_ArrayForEach(segment, segments)
	{
		const char *state = cJSON_GetStringValue(cJSON_GetObjectItem(segment, "state"));
		const char *lost = cJSON_GetStringValue(cJSON_GetObjectItem(segment, "lost"));
		bool bad = state &&
			   (strcmp(state, "lost") == 0 || strcmp(state, "in doubt") == 0 ||
			    strcmp(state, "rolled back") == 0 || strcmp(state, "damaged") == 0);
		bool ranges = lost && strcmp(lost, "none") != 0;
		bool silent = cJSON_IsTrue(cJSON_GetObjectItem(segment, "source_silent"));

		if (!bad && !ranges && !silent)
			continue;
		item = cJSON_CreateObject();
		cJSON_AddItemToObject(item, "node",
				      cJSON_Duplicate(cJSON_GetObjectItem(segment, "node"), true));
		cJSON_AddItemToObject(item, "name",
				      cJSON_Duplicate(cJSON_GetObjectItem(segment, "name"), true));
		cJSON_AddStringToObject(item, "why",
					bad	 ? state
					: silent ? "source is silent"
						 : "pages lost");
		if (ranges)
			cJSON_AddStringToObject(item, "lost", lost);
		cJSON_AddItemToArray(attention, item);
	}
}

/* What a terminal would obey, and cJSON writes as it stands: these are in strings only. */
static void put_json(const char *text)
{
	size_t plain;

	for (; *text; text += text[0] != 0) {
		plain = strcspn(text, "\x7f\xc2");
		fwrite(text, 1, plain, stdout);
		text += plain;
		if (text[0] == 0x7f) {
			fputs("\\u007f", stdout);
		} else if (text[0]) {
			unsigned char next = (unsigned char)text[1];

			if (next >= 0x80 && next < 0xa0)
				printf("\\u%04x", (unsigned char)*++text);
			else
				putchar((unsigned char)text[0]);
		}
	}
	putchar('\n');
}

static int show_json(const char *mount)
{
	char *status = read_text(mount, "status");
	char *nodes = status ? read_text(mount, "nodes") : NULL;
	cJSON *root = cJSON_CreateObject(), *list, *segments;
	char *save, *text = NULL;

	if (!nodes || !root) {
		free(status);
		cJSON_Delete(root);
		return EXIT_FAILED;
	}
	cJSON_AddStringToObject(root, "mountpoint", mount);
	add_status(root, status);
	list = cJSON_AddArrayToObject(root, "nodes");
	for (char *line = strtok_r(nodes, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		add_node(list, line);
	segments = cJSON_AddArrayToObject(root, "segments");
	if (add_segments(segments, mount)) {
		add_attention(root, segments);
		text = cJSON_Print(root);
	}
	if (text)
		put_json(text);
	free(text);
	free(status);
	free(nodes);
	cJSON_Delete(root);
	return text ? 0 : EXIT_FAILED;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	char mount[PATH_MAX];
	bool json = false;
	int c, rc;

	output_begin();
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return output_end("rampfs-status");
		case 'V':
			printf("rampfs-status %s\n", RAMPFS_VERSION);
			return output_end("rampfs-status");
		default:
			fputs("Try 'rampfs-status --help'.\n", stderr);
			return EXIT_USAGE;
		}
	}
	if (argc - optind > 1) {
		fputs("rampfs-status: one MOUNTPOINT at a time\nTry 'rampfs-status --help'.\n",
		      stderr);
		return EXIT_USAGE;
	}
	if (optind < argc) {
		snprintf(mount, sizeof(mount), "%s", argv[optind]);
	} else {
		rc = find_mount("rampfs-status", mount);
		if (rc)
			return rc;
	}
	rc = json ? show_json(mount) : show_text(mount);
	return rc ? rc : output_end("rampfs-status");
}
