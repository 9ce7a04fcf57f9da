#include "status_json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "base/visible.h"
#include "ramp_file.h"

/* Raised whenever a member goes or means something else. 2: numbers instead of the table's text. */
#define SCHEMA_VERSION 2

/* Adds a segment's name, which may be any bytes. JSON is UTF-8, so other bytes are written \xHH,
   and so is a backslash: the bytes can be found again. */
static void json_add_name(cJSON *object, const char *name)
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

/* "rdma_KEY=N": a number of RDMA with that node. False: it is another word. */
static bool json_add_rdma(cJSON *node, char *word)
{
	char *value = strchr(word, '=');

	if (strncmp(word, "rdma_", 5) != 0 || !value)
		return false;
	*value = 0;
	cJSON_AddNumberToObject(node, word, strtod(value + 1, NULL));
	return true;
}

/* "NAME voter up HOST:PORT capacity=N incarnation=HEX transport=T [rdma_KEY=N...] [leader] [here]" */
static void json_add_node(cJSON *nodes, char *line)
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
		else if (strncmp(word, "transport=", 10) == 0)
			cJSON_AddStringToObject(node, "transport", word + 10);
		else if (!json_add_rdma(node, word))
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

/* Whether the fact is a number. A node may be named 7, and is a string all the same. */
static bool counts(const char *key)
{
	static const char *const keys[] = {"id", "size_bytes", "epoch", "extent_bytes",
					   "resident_bytes"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

/* A fact's name in JSON: a number of bytes has its unit in it. */
static const char *json_key(const char *key)
{
	return strcmp(key, "size") == 0	    ? "size_bytes"
	       : strcmp(key, "extent") == 0 ? "extent_bytes"
					    : key;
}

/* "from=a to=b window_us=312 ..." becomes an object, in which each number of pages stands as bytes,
   too; "none" becomes null. */
static void json_add_last_move(cJSON *segment, const char *value)
{
	char text[1024], key[64], *rest = text, *word, *is;
	cJSON *move;

	if (!strchr(value, '=') || strlen(value) >= sizeof(text)) {
		cJSON_AddNullToObject(segment, "last_move");
		return;
	}
	move = cJSON_AddObjectToObject(segment, "last_move");
	strcpy(text, value);
	while ((word = strsep(&rest, " "))) {
		is = strchr(word, '=');
		if (!is || is == word || is - word > 40)
			continue;
		*is++ = 0;
		if (!is_number(is) || strcmp(word, "from") == 0 || strcmp(word, "to") == 0) {
			cJSON_AddStringToObject(move, word, is);
			continue;
		}
		cJSON_AddNumberToObject(move, word, strtod(is, NULL));
		if (is - word > 7 && strcmp(is - 7, "_pages") == 0) {
			snprintf(key, sizeof(key), "%.*s_bytes", (int)(is - 7 - word), word);
			cJSON_AddNumberToObject(move, key, strtod(is, NULL) * RAMP_PAGE_BYTES);
		}
	}
}

/* "state=keeping have_bytes=N ... why=WORDS" becomes an object; "none" becomes null. */
static void json_add_prefill(cJSON *segment, const char *key, const char *value)
{
	char text[512], *rest = text, *word, *is, *why;
	cJSON *prefill;

	if (!strchr(value, '=') || strlen(value) >= sizeof(text)) {
		cJSON_AddNullToObject(segment, key);
		return;
	}
	prefill = cJSON_AddObjectToObject(segment, key);
	strcpy(text, value);
	why = strstr(text, " why=");
	if (why)
		*why = 0;
	while ((word = strsep(&rest, " "))) {
		is = strchr(word, '=');
		if (!is)
			continue;
		*is++ = 0;
		if (is_number(is))
			cJSON_AddNumberToObject(prefill, word, strtod(is, NULL));
		else
			cJSON_AddStringToObject(prefill, word, is);
	}
	cJSON_AddStringToObject(prefill, "why", why ? why + 5 : "");
}

static void json_add_fact(cJSON *segment, const char *key, const char *value)
{
	key = json_key(key);
	if (strcmp(key, "last_move") == 0) {
		json_add_last_move(segment, value);
		return;
	}
	if (strcmp(key, "prefill_state") == 0) {
		json_add_prefill(segment, key, value);
		return;
	}
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

/* Cuts a line at its tabs. Returns the number of pieces. */
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
				json_add_name(segment, values[i]);
		} else if (strcmp(keys[i], "node") == 0) {
			cJSON_AddStringToObject(segment, "node", values[i]);
		} else {
			json_add_fact(segment, keys[i], values[i]);
		}
	}
	return segment;
}

/* Whether .ramp/segments is whole: a number, the columns' names, a line each, the number again. */
static bool whole(const char *text)
{
	size_t digits = strspn(text, "0123456789"), len = strlen(text);

	return digits && len > 2 * (digits + 1) && text[len - digits - 2] == '\n' &&
	       memcmp(text, text + len - digits - 1, digits + 1) == 0;
}

static bool json_add_segments(cJSON *segments, const char *mount)
{
	char *text = NULL, *save, *line, *next, *keys[MAX_KEYS];
	int n;

	for (int tries = 0; tries < 10; tries++) {
		free(text);
		text = ramp_file_read(mount, "segments");
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

/* Takes "source", or "source, mode MODE: WHY", apart. */
static void json_add_side(cJSON *migration, char *side)
{
	char *mode = strstr(side, ", mode "), *why = mode ? strstr(mode, ": ") : NULL;

	if (why) {
		*mode = *why = 0;
		cJSON_AddStringToObject(migration, "mode", mode + strlen(", mode "));
		cJSON_AddStringToObject(migration, "why", why + 2);
	}
	cJSON_AddStringToObject(migration, "side", side);
}

/* Takes "  NAME  FROM -> TO  STATE  N ms  (source, mode MODE: WHY)" apart from its end: a name may hold
   anything. */
static void json_add_migration(cJSON *migrations, char *line)
{
	enum { SIDE, AGE, STATE, NODES, FIELDS };
	cJSON *migration = cJSON_CreateObject();
	char *at, *arrow;

	for (size_t i = 0; i < FIELDS; i++) {
		for (at = line + strlen(line); at > line && !(at[0] == ' ' && at[1] == ' '); at--)
			;
		if (at == line)
			break;
		*at = 0;
		if (at[2] == '(')
			at[strlen(at + 2) + 1] = 0;
		arrow = strstr(at + 2, " -> ");
		if (i == NODES && arrow) {
			*arrow = 0;
			cJSON_AddStringToObject(migration, "from", at + 2);
			cJSON_AddStringToObject(migration, "to", arrow + 4);
		} else if (i == AGE) {
			cJSON_AddNumberToObject(migration, "age_ms", strtod(at + 2, NULL));
		} else if (i == SIDE) {
			json_add_side(migration, at[2] == '(' ? at + 3 : at + 2);
		} else {
			cJSON_AddStringToObject(migration, i == STATE ? "state" : "nodes", at + 2);
		}
	}
	line += 2; /* and no more: a name may begin with spaces */
	unescape(line);
	json_add_name(migration, line);
	cJSON_AddItemToArray(migrations, migration);
}

/* Returns whether the head's line is text for people of which json_add_numbers has the numbers. */
static bool has_numbers(const char *key)
{
	static const char *const keys[] = {"store", "programs",	    "requests_waiting",	   "arena",
					   "level", "moves_queued", "limit_of_pages_ahead"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(key, keys[i]) == 0)
			return true;
	return false;
}

static void json_add_head(cJSON *root, char *line)
{
	char *value = strstr(line, ": ");

	if (!value)
		return;
	*value = 0;
	for (char *at = line; (at = strchr(at, ' '));)
		*at = '_';
	if (strcmp(line, "quorum") == 0)
		cJSON_AddBoolToObject(root, line, strcmp(value + 2, "yes") == 0);
	else if (!has_numbers(line))
		cJSON_AddStringToObject(root, line, value + 2);
}

/* Adds the head's "key: value" lines, and the migrations' section as an array. */
static void json_add_status(cJSON *root, char *status)
{
	cJSON *migrations = cJSON_AddArrayToObject(root, "migrations");
	enum { HEAD, OTHER, MIGRATIONS } section = HEAD;
	char *save;

	for (char *line = strtok_r(status, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "  ", 2) == 0) {
			if (section == MIGRATIONS)
				json_add_migration(migrations, line);
			continue;
		}
		if (strncmp(line, "migrations:", 11) == 0)
			section = MIGRATIONS;
		else if (strncmp(line, "segments:", 9) == 0 || strncmp(line, "nodes:", 6) == 0 ||
			 strncmp(line, "users of the arena:", 19) == 0)
			section = OTHER;
		else if (section == HEAD)
			json_add_head(root, line);
	}
}

/* "rampfs_arena_user_bytes{uid="1000"} 67108864" */
static void json_add_user(cJSON *users, const char *line)
{
	unsigned int uid;
	double bytes;
	cJSON *user;

	if (sscanf(line, "rampfs_arena_user_bytes{uid=\"%u\"} %lf", &uid, &bytes) != 2)
		return;
	user = cJSON_CreateObject();
	cJSON_AddNumberToObject(user, "uid", uid);
	cJSON_AddNumberToObject(user, "bytes", bytes);
	cJSON_AddItemToArray(users, user);
}

/* Adds the numbers of the whole node, which .ramp/metrics has: "rampfs_NAME VALUE". */
static bool json_add_numbers(cJSON *root, const char *mount)
{
	static const struct {
		const char *metric, *key;
	} numbers[] = {{"rampfs_store_used_bytes ", "store_used_bytes"},
		       {"rampfs_store_capacity_bytes ", "store_capacity_bytes"},
		       {"rampfs_sessions ", "programs"},
		       {"rampfs_attachments ", "mappings"},
		       {"rampfs_fuse_waiting ", "requests_waiting"},
		       {"rampfs_metadata_level ", "level"},
		       {"rampfs_migrations_queued ", "moves_queued"},
		       {"rampfs_limit_bytes{direction=\"sent\"} ", "limit_sent_bytes_s"},
		       {"rampfs_limit_bytes{direction=\"received\"} ", "limit_received_bytes_s"},
		       {"rampfs_arena_bytes ", "arena_bytes"},
		       {"rampfs_arena_used_bytes ", "arena_used_bytes"},
		       {"rampfs_arena_user_max_bytes ", "arena_user_max_bytes"}};
	char *metrics = ramp_file_read(mount, "metrics"), *save;
	char *line = metrics ? strtok_r(metrics, "\n", &save) : NULL;
	cJSON *users = cJSON_AddArrayToObject(root, "arena_users");

	for (; line; line = strtok_r(NULL, "\n", &save)) {
		json_add_user(users, line);
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
			size_t len = strlen(numbers[i].metric);

			if (strncmp(line, numbers[i].metric, len) == 0)
				cJSON_AddNumberToObject(root, numbers[i].key,
							strtod(line + len, NULL));
		}
	}
	free(metrics);
	return metrics != NULL;
}

/* Adds the segments whose bytes are lost, in doubt or not served: those that come first in the
   tables. */
static void json_add_attention(cJSON *root, const cJSON *segments)
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

/* Prints the object. Escapes control characters that cJSON does not escape; they are in strings
   only. */
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

int status_json(const char *mount)
{
	char *status = ramp_file_read(mount, "status");
	char *nodes = status ? ramp_file_read(mount, "nodes") : NULL;
	cJSON *root = cJSON_CreateObject(), *list, *segments;
	char *save, *text = NULL;

	if (!nodes || !root) {
		free(status);
		cJSON_Delete(root);
		return 1;
	}
	cJSON_AddNumberToObject(root, "schema_version", SCHEMA_VERSION);
	cJSON_AddStringToObject(root, "mountpoint", mount);
	json_add_status(root, status);
	list = cJSON_AddArrayToObject(root, "nodes");
	for (char *line = strtok_r(nodes, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		json_add_node(list, line);
	segments = cJSON_AddArrayToObject(root, "segments");
	if (json_add_numbers(root, mount) && json_add_segments(segments, mount)) {
		json_add_attention(root, segments);
		text = cJSON_Print(root);
	}
	if (text)
		put_json(text);
	free(text);
	free(status);
	free(nodes);
	cJSON_Delete(root);
	return text ? 0 : 1;
}
