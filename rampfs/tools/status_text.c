#include "status_text.h"

#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ramp_file.h"
#include "text_table.h"

/* Cuts a line of .ramp/status behind its last two spaces: a name before them may hold two, too. */
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

/* Whether a segment's state in .ramp/status is a problem. A node in it may be named by any of these
   words. */
static bool is_trouble(const char *state)
{
	static const char *const states[] = {"lost", "in doubt", "rolled back", "damaged"};

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (strncmp(state, states[i], strlen(states[i])) == 0)
			return true;
	return strstr(state, ", source is silent") || strstr(state, " pages lost");
}

/* "A cache  1.0 GiB  pulling from a, 40 % here  at 0x2000..." */
static void segment_row(struct text_table *t, struct text_table *troubles, char *line)
{
	char *addr = cut_last(line), *state = addr, *size;

	if (addr && strncmp(addr, "at 0x", 5) == 0)
		state = cut_last(line);
	else
		addr = NULL;
	size = state ? cut_last(line) : NULL;
	if (!size) {
		if (strncmp(line, "... and ", 8) == 0)
			text_table_add(t, (const char *[COLUMNS]){line});
		return;
	}
	text_table_add(t, (const char *[COLUMNS]){line, size, state, addr ? addr + 3 : "-"});
	if (is_trouble(state))
		text_table_add(troubles, (const char *[COLUMNS]){line, state});
}

/* "cache  a -> b  moving  12 ms  (source, mode lazy: asked for)" */
static void migration_row(struct text_table *t, char *line)
{
	char *side = cut_last(line), *age = side ? cut_last(line) : NULL;
	char *state = age ? cut_last(line) : NULL, *nodes = state ? cut_last(line) : NULL;

	if (!nodes)
		return;
	side++;
	if (*side)
		side[strlen(side) - 1] = 0;
	text_table_add(t, (const char *[COLUMNS]){line, nodes, state, age, side});
}

/* "a/cache  a -> b  keeping  64.0 MiB there, 12.0 KiB behind  3 s  (why not; again in 4 s)" */
static void prefill_row(struct text_table *t, char *line)
{
	char *cell[COLUMNS];

	for (int i = COLUMNS - 1; i > 0; i--)
		if (!(cell[i] = cut_last(line)))
			return;
	cell[0] = line;
	cell[COLUMNS - 1]++;
	if (*cell[COLUMNS - 1])
		cell[COLUMNS - 1][strlen(cell[COLUMNS - 1]) - 1] = 0;
	text_table_add(t, (const char *const *)cell);
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

/* The words of a node's line that are of RDMA. */
struct rdma_words {
	bool used;
	double pairs, bytes, parts; /* pairs -1: no figures, it is this node */
	char why[96];
};

static void rdma_word(struct rdma_words *rdma, const char *word)
{
	size_t len = strlen(rdma->why);
	char reason[16];
	double n;

	if (sscanf(word, "rdma_queue_pairs=%lf", &n) == 1) {
		rdma->pairs = n;
	} else if (sscanf(word, "rdma_registered_bytes=%lf", &n) == 1) {
		rdma->bytes = n;
	} else if (sscanf(word, "rdma_%15[a-z]_parts=%lf", reason, &n) == 2 && n > 0) {
		rdma->parts += n;
		snprintf(rdma->why + len, sizeof(rdma->why) - len, "%s%s %.0f", len ? ", " : "",
			 reason, n);
	}
}

/* Adds a word from the end of a node's line. */
static void note(char *notes, size_t cap, struct rdma_words *rdma, const char *word)
{
	size_t len = strlen(notes);

	if (strcmp(word, "transport=verbs") == 0)
		rdma->used = true;
	else if (strncmp(word, "rdma_", 5) == 0)
		rdma_word(rdma, word);
	else if (strncmp(word, "transport=", 10) != 0)
		snprintf(notes + len, cap - len, "%s%.12s", len ? ", " : "", word);
}

/* Adds "RDMA", or, as .ramp/status, "RDMA: 2 queue pairs, 48.0 MiB registered, 3 parts over TCP (short 1, cut 2)". */
static void note_rdma(char *notes, size_t cap, const struct rdma_words *rdma)
{
	size_t len = strlen(notes);
	char size[32], left[128] = "";

	if (!rdma->used)
		return;
	put_size(size, sizeof(size), rdma->bytes);
	if (rdma->parts > 0)
		snprintf(left, sizeof(left), ", %.0f parts over TCP (%s)", rdma->parts, rdma->why);
	if (rdma->pairs < 0)
		snprintf(notes + len, cap - len, "%sRDMA", len ? ", " : "");
	else
		snprintf(notes + len, cap - len, "%sRDMA: %.0f queue pairs, %s registered%s",
			 len ? ", " : "", rdma->pairs, size, left);
}

/* "NAME voter up HOST:PORT capacity=N incarnation=HEX transport=T [rdma_KEY=N...] [leader] [here]" */
static void node_row(struct text_table *t, char *line)
{
	char *word[16] = {NULL}, *save, notes[320] = "", capacity[32] = "";
	struct rdma_words rdma = {.pairs = -1};
	int n = 0;

	for (char *w = strtok_r(line, " ", &save); w && n < 16; w = strtok_r(NULL, " ", &save))
		word[n++] = w;
	if (n < 6)
		return;
	if (strncmp(word[4], "capacity=", 9) == 0)
		put_size(capacity, sizeof(capacity), strtod(word[4] + 9, NULL));
	for (int i = 6; i < n; i++)
		note(notes, sizeof(notes), &rdma, word[i]);
	note_rdma(notes, sizeof(notes), &rdma);
	text_table_add(
		t, (const char *[COLUMNS]){word[0], word[1], word[2], word[3], capacity, notes});
}

/* "1000  2.0 GiB" */
static void user_row(struct text_table *t, char *line)
{
	char *bytes = cut_last(line);
	struct passwd *user;

	if (!bytes)
		return;
	user = getpwuid((uid_t)strtoul(line, NULL, 10));
	text_table_add(t, (const char *[COLUMNS]){user ? user->pw_name : line, bytes});
}

struct status_tables {
	struct text_table nodes, segments, prefills, migrations, troubles, users;
};

/* Prints the head's lines; the rest fills the tables. */
static void read_status(struct status_tables *t, char *status)
{
	enum { HEAD, OTHER, SEGMENTS, PREFILLS, MIGRATIONS, USERS } section = HEAD;
	char *save;

	for (char *line = strtok_r(status, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "segments:", 9) == 0)
			section = SEGMENTS;
		else if (strncmp(line, "prefills:", 9) == 0)
			section = PREFILLS;
		else if (strncmp(line, "migrations:", 11) == 0)
			section = MIGRATIONS;
		else if (strncmp(line, "nodes:", 6) == 0)
			section = OTHER;
		else if (strncmp(line, "users of the arena:", 19) == 0)
			section = USERS;
		else if (section == HEAD)
			puts(line);
		else if (section == SEGMENTS)
			segment_row(&t->segments, &t->troubles, line + strspn(line, " "));
		else if (section == PREFILLS && strncmp(line, "  ", 2) == 0)
			prefill_row(&t->prefills, line + 2);
		else if (section == MIGRATIONS && strncmp(line, "  ", 2) == 0)
			migration_row(&t->migrations, line + 2);
		else if (section == USERS)
			user_row(&t->users, line + strspn(line, " "));
	}
}

static void put_section(struct text_table *t, const char *none)
{
	putchar('\n');
	if (t->n)
		text_table_put(t);
	else
		puts(none);
	text_table_free(t);
}

int status_text(const char *mount)
{
	struct status_tables t = {
		.nodes = {{"NODE", "ROLE", "STATE", "ADDRESS", "CAPACITY", ""},
			  {[4] = true},
			  NULL,
			  0},
		.segments = {{"SEGMENT", "SIZE", "STATE", "AT"}, {[1] = true}, NULL, 0},
		.prefills = {{"PREFILL", "FROM -> TO", "STATE", "PAGES", "FOR", ""},
			     {[4] = true},
			     NULL,
			     0},
		.migrations = {{"MIGRATION", "FROM -> TO", "STATE", "SINCE", "THIS NODE IS"},
			       {[3] = true},
			       NULL,
			       0},
		.users = {{"USER", "ADDRESSES"}, {[1] = true}, NULL, 0},
		.troubles = {{"LOST OR IN DOUBT", "WHY"}, {false}, NULL, 0},
	};
	char *status = ramp_file_read(mount, "status");
	char *nodes = status ? ramp_file_read(mount, "nodes") : NULL, *save;

	if (nodes) {
		read_status(&t, status);
		for (char *line = strtok_r(nodes, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			node_row(&t.nodes, line);
		put_section(&t.troubles, "nothing is lost or in doubt");
		put_section(&t.nodes, "no nodes");
		put_section(&t.segments, "no segments");
		if (t.prefills.n)
			put_section(&t.prefills, "");
		put_section(&t.migrations, "no migrations under way on this node");
		put_section(&t.users, "no addresses of the arena are given");
	}
	free(status);
	free(nodes);
	return nodes ? 0 : 1;
}
