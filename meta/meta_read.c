/*
 * Reading this node's tables, from any thread: connections of their own, kept for the next call.
 *
 * It fails with -ENOENT where there is no row, and -EIO where SQLite can't read.
 */
#include <errno.h>
#include <stdlib.h>

#include "meta_inner.h"

#define ROWS_AT_ONCE 64

struct idle_reader {
	struct idle_reader *next;
	struct journal_reader *reader;
};

/* A reader that nobody else uses until put_reader; NULL: none can be opened. */
static struct idle_reader *get_reader(struct meta *meta)
{
	struct idle_reader *r;

	pthread_mutex_lock(&meta->readers_lock);
	r = meta->readers;
	if (r)
		meta->readers = r->next;
	pthread_mutex_unlock(&meta->readers_lock);
	if (r)
		return r;
	r = calloc(1, sizeof(*r));
	if (r && journal_reader_open(meta->path, NULL, &r->reader, NULL) < 0) {
		free(r);
		return NULL;
	}
	return r;
}

/* A reader that has failed is not used again: SQLite may keep what it failed at. */
static void put_reader(struct meta *meta, struct idle_reader *r, int rc)
{
	if (rc == -EIO) {
		journal_reader_close(r->reader);
		free(r);
		return;
	}
	pthread_mutex_lock(&meta->readers_lock);
	r->next = meta->readers;
	meta->readers = r;
	pthread_mutex_unlock(&meta->readers_lock);
}

void readers_close(struct meta *meta)
{
	struct idle_reader *r;

	while ((r = meta->readers)) {
		meta->readers = r->next;
		journal_reader_close(r->reader);
		free(r);
	}
}

int meta_segment(struct meta *meta, ramp_segment_t id, struct segment_row *row)
{
	struct idle_reader *r = get_reader(meta);
	int rc;

	if (!r)
		return -EIO;
	rc = journal_read_segment(r->reader, id, row);
	put_reader(meta, r, rc);
	return rc;
}

int meta_lookup(struct meta *meta, ramp_node_t node, const char *name, struct segment_row *row)
{
	struct idle_reader *r = get_reader(meta);
	int rc;

	if (!r)
		return -EIO;
	rc = journal_read_name(r->reader, node, name, row);
	put_reader(meta, r, rc);
	return rc;
}

static int read_segments(struct meta *meta, ramp_node_t node, ramp_segment_t after,
			 struct segment_row *rows)
{
	struct idle_reader *r = get_reader(meta);
	int n;

	if (!r)
		return -EIO;
	n = journal_read_segments(r->reader, node, after, rows, ROWS_AT_ONCE);
	put_reader(meta, r, n);
	return n;
}

/* No reader is held while fn runs, so it may read the tables itself. */
int meta_each_segment(struct meta *meta, ramp_node_t node, ramp_segment_t after,
		      int (*fn)(void *arg, const struct segment_row *row), void *arg)
{
	struct segment_row *rows = calloc(ROWS_AT_ONCE, sizeof(*rows));
	int i, n, rc = 0;

	if (!rows)
		return -ENOMEM;
	do {
		n = read_segments(meta, node, after, rows);
		for (i = 0; rc == 0 && i < n; i++) {
			after = rows[i].id;
			rc = fn(arg, &rows[i]);
		}
	} while (rc == 0 && n == ROWS_AT_ONCE);
	free(rows);
	return n < 0 ? n : rc;
}

int meta_node(struct meta *meta, ramp_node_t node, struct node_row *row)
{
	struct idle_reader *r = get_reader(meta);
	int rc;

	if (!r)
		return -EIO;
	rc = journal_read_node(r->reader, node, row);
	put_reader(meta, r, rc);
	return rc;
}

int meta_node_by_name(struct meta *meta, const char *name, struct node_row *row)
{
	struct idle_reader *r = get_reader(meta);
	int rc;

	if (!r)
		return -EIO;
	rc = journal_read_node_by_name(r->reader, name, row);
	put_reader(meta, r, rc);
	return rc;
}

static int read_nodes(struct meta *meta, ramp_node_t after, struct node_row *rows)
{
	struct idle_reader *r = get_reader(meta);
	int n;

	if (!r)
		return -EIO;
	n = journal_read_nodes(r->reader, after, rows, ROWS_AT_ONCE);
	put_reader(meta, r, n);
	return n;
}

int meta_each_node(struct meta *meta, int (*fn)(void *arg, const struct node_row *row), void *arg)
{
	struct node_row *rows = calloc(ROWS_AT_ONCE, sizeof(*rows));
	ramp_node_t after = 0;
	int i, n, rc = 0;

	if (!rows)
		return -ENOMEM;
	do {
		n = read_nodes(meta, after, rows);
		for (i = 0; rc == 0 && i < n; i++) {
			after = rows[i].node;
			rc = fn(arg, &rows[i]);
		}
	} while (rc == 0 && n == ROWS_AT_ONCE);
	free(rows);
	return n < 0 ? n : rc;
}
