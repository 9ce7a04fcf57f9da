/*
 * Reading this node's tables, from any thread (meta.h): connections of their own, kept for the next
 * call.
 *
 * It fails with -ENOENT where there is no row, and with no other error: every caller would have to
 * tell "can't be read" from "does not exist". So a failed read is tried again with a new
 * connection. Where there is no descriptor or memory for one, the caller waits for another caller's
 * connection, half a second at most. Where it still fails, the process ends as it does when the
 * journal can't be written (config.fatal), and its keeper starts it again. -EIO is returned only
 * where config.fatal returns.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "journal_keys.h"
#include "journal_reader.h"
#include "meta_core.h"
#include "meta_read.h"
#include "row_cache.h"

#define ROWS_AT_ONCE 64
#define ATTEMPTS     3
#define WAITS	     50
#define WAIT_US	     10000

struct idle_reader {
	struct idle_reader *next;
	struct journal_reader *reader;
};

/* The arguments of a read, and where the rows go. */
struct table_query {
	ramp_segment_t id;
	ramp_node_t node;
	const char *name;
	struct segment_row *segments;
	struct node_row *nodes;
	struct meta_settings *settings;
	struct arena_use *uses;
	size_t max;
	uint64_t all_bytes;
	char *text;
	size_t text_cap;
};

/* Returns a reader for this caller alone until put_reader; NULL: none can be opened. */
static struct idle_reader *get_reader(struct meta *meta, struct ramp_err *err)
{
	struct meta_readers *readers = meta_readers(meta);
	struct idle_reader *r;

	pthread_mutex_lock(&readers->lock);
	r = readers->idle;
	if (r)
		readers->idle = r->next;
	pthread_mutex_unlock(&readers->lock);
	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		ramp_err_set(err, ENOMEM, "journal %s: out of memory", meta_journal_path(meta));
	if (r && journal_reader_open(meta_journal_path(meta), NULL, &r->reader, err) < 0) {
		free(r);
		return NULL;
	}
	return r;
}

static void put_reader(struct meta *meta, struct idle_reader *r)
{
	struct meta_readers *readers = meta_readers(meta);

	pthread_mutex_lock(&readers->lock);
	r->next = readers->idle;
	readers->idle = r;
	pthread_mutex_unlock(&readers->lock);
}

static void close_reader(struct idle_reader *r)
{
	journal_reader_close(r->reader);
	free(r);
}

void readers_init(struct meta_readers *readers)
{
	pthread_mutex_init(&readers->lock, NULL);
	readers->idle = NULL;
	readers->cache = row_cache_open();
}

void readers_close(struct meta_readers *readers)
{
	struct idle_reader *r;

	while ((r = readers->idle)) {
		readers->idle = r->next;
		close_reader(r);
	}
	row_cache_close(readers->cache);
	pthread_mutex_destroy(&readers->lock);
}

static int read_tables(struct meta *meta,
		       int (*fn)(struct journal_reader *r, struct table_query *q),
		       struct table_query *q)
{
	struct ramp_err err = {0};

	for (int i = 0, waits = 0; i < ATTEMPTS; i++) {
		struct idle_reader *r = get_reader(meta, &err);
		int rc;

		for (; !r && waits < WAITS; waits++) {
			usleep(WAIT_US);
			r = get_reader(meta, &err);
		}
		rc = r ? fn(r->reader, q) : -EIO;
		if (r && (rc >= 0 || rc == -ENOENT)) {
			put_reader(meta, r);
			return rc;
		}
		/* A reader that has failed is not used again: SQLite may keep its error. */
		if (r) {
			ramp_err_set(&err, EIO, "journal %s: reading: %s", meta_journal_path(meta),
				     journal_reader_why(r->reader));
			close_reader(r);
		}
	}
	return meta_unreadable(meta, err.text);
}

static int read_segment(struct journal_reader *r, struct table_query *q)
{
	return journal_read_segment(r, q->id, q->segments);
}

static int read_segment_was(struct journal_reader *r, struct table_query *q)
{
	return journal_read_segment_was(r, q->id);
}

static int read_name(struct journal_reader *r, struct table_query *q)
{
	return journal_read_name(r, q->node, q->name, q->segments);
}

static int read_segments(struct journal_reader *r, struct table_query *q)
{
	return journal_read_segments(r, q->node, q->id, q->segments, ROWS_AT_ONCE);
}

static int read_node(struct journal_reader *r, struct table_query *q)
{
	return journal_read_node(r, q->node, q->nodes);
}

static int read_node_name(struct journal_reader *r, struct table_query *q)
{
	return journal_read_node_by_name(r, q->name, q->nodes);
}

static int read_member(struct journal_reader *r, struct table_query *q)
{
	return journal_read_member(r, q->node);
}

static int read_address(struct journal_reader *r, struct table_query *q)
{
	return journal_read_address(r, q->node, q->text, q->text_cap);
}

static int read_nodes(struct journal_reader *r, struct table_query *q)
{
	return journal_read_nodes(r, q->node, q->nodes, ROWS_AT_ONCE);
}

static int read_settings(struct journal_reader *r, struct table_query *q)
{
	int rc = journal_read_counter(r, LEVEL_KEY, 0, &q->settings->level);

	return rc ? rc
		  : journal_read_counter(r, ARENA_USER_MAX_KEY, META_DEFAULT,
					 &q->settings->arena_user_max);
}

int meta_get_settings(struct meta *meta, struct meta_settings *settings)
{
	int rc;

	memset(settings, 0, sizeof(*settings));
	rc = read_tables(meta, read_settings, &(struct table_query){.settings = settings});
	settings->arena_user_set = settings->arena_user_max != META_DEFAULT;
	if (rc == 0 && !settings->arena_user_set)
		settings->arena_user_max = meta_arena_user_default(meta_opened(meta)->arena_len);
	return rc;
}

static int read_uses(struct journal_reader *r, struct table_query *q)
{
	return journal_read_uses(r, q->uses, q->max, &q->all_bytes);
}

int meta_arena_uses(struct meta *meta, struct arena_use *uses, size_t max, uint64_t *all_bytes)
{
	struct table_query q = {.uses = uses, .max = max};
	int n = read_tables(meta, read_uses, &q);

	*all_bytes = q.all_bytes;
	return n;
}

int meta_segment(struct meta *meta, ramp_segment_t id, struct segment_row *row)
{
	struct row_cache *cache = meta_readers(meta)->cache;
	uint64_t turn;
	int rc;

	if (row_cache_segment(cache, id, row, &turn))
		return 0;
	rc = read_tables(meta, read_segment, &(struct table_query){.id = id, .segments = row});
	if (!rc)
		row_cache_put_segment(cache, row, turn);
	return rc;
}

bool meta_knows(struct meta *meta, ramp_segment_t id)
{
	return read_tables(meta, read_segment_was, &(struct table_query){.id = id}) == 1;
}

int meta_lookup(struct meta *meta, ramp_node_t node, const char *name, struct segment_row *row)
{
	return read_tables(meta, read_name,
			   &(struct table_query){.node = node, .name = name, .segments = row});
}

/* Holds no reader while fn runs, so fn may read the tables itself. */
int meta_each_segment(struct meta *meta, ramp_node_t node, ramp_segment_t after,
		      int (*fn)(void *arg, const struct segment_row *row), void *arg)
{
	struct segment_row *rows = calloc(ROWS_AT_ONCE, sizeof(*rows));
	struct table_query q = {.id = after, .node = node, .segments = rows};
	int i, n, rc = 0;

	if (!rows)
		return meta_unreadable(meta, "reading the tables: out of memory");
	do {
		n = read_tables(meta, read_segments, &q);
		for (i = 0; rc == 0 && i < n; i++) {
			q.id = rows[i].id;
			rc = fn(arg, &rows[i]);
		}
	} while (rc == 0 && n == ROWS_AT_ONCE);
	free(rows);
	return n < 0 ? n : rc;
}

int meta_node(struct meta *meta, ramp_node_t node, struct node_row *row)
{
	struct row_cache *cache = meta_readers(meta)->cache;
	uint64_t turn;
	int rc;

	if (row_cache_node(cache, node, row, &turn))
		return 0;
	rc = read_tables(meta, read_node, &(struct table_query){.node = node, .nodes = row});
	if (!rc)
		row_cache_put_node(cache, row, turn);
	return rc;
}

int meta_node_by_name(struct meta *meta, const char *name, struct node_row *row)
{
	return read_tables(meta, read_node_name, &(struct table_query){.name = name, .nodes = row});
}

void meta_overrule_address(struct meta *meta, struct node_row *row)
{
	char text[2 * (RAMP_ADDRESS_MAX + 1)], *to;
	struct table_query q = {.node = row->node, .text = text, .text_cap = sizeof(text)};

	if (read_tables(meta, read_address, &q) < 0)
		return;
	to = strchr(text, ' ');
	if (!to)
		return;
	*to++ = '\0';
	if (strcmp(row->address, text) == 0)
		snprintf(row->address, sizeof(row->address), "%s", to);
}

bool meta_in_configuration(struct meta *meta, ramp_node_t node)
{
	return read_tables(meta, read_member, &(struct table_query){.node = node}) == 1;
}

int meta_each_node(struct meta *meta, int (*fn)(void *arg, const struct node_row *row), void *arg)
{
	struct node_row *rows = calloc(ROWS_AT_ONCE, sizeof(*rows));
	struct table_query q = {.nodes = rows};
	int i, n, rc = 0;

	if (!rows)
		return meta_unreadable(meta, "reading the tables: out of memory");
	do {
		n = read_tables(meta, read_nodes, &q);
		for (i = 0; rc == 0 && i < n; i++) {
			q.node = rows[i].node;
			rc = fn(arg, &rows[i]);
		}
	} while (rc == 0 && n == ROWS_AT_ONCE);
	free(rows);
	return n < 0 ? n : rc;
}
