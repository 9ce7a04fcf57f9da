/*
 * A journal that was damaged on its disk (journal*.c, replica.c). The input changes a correct one,
 * again and again: a byte of the file (an even byte, then the offset and the value), or, so that
 * SQLite finds nothing wrong, a value of a column (an odd byte, which column, the length of the
 * value; 0: a number). Opening it is refused with a reason, or succeeds. Strings read from it are
 * terminated and values in range, or the journal is dead, which is fatal in production.
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "founding.h"
#include "meta/journal_nodes.h"
#include "meta/journal_reader.h"
#include "meta/journal_results.h"
#include "meta/journal_segments.h"
#include "meta/replica.h"

static const char *const columns[] = {
	"UPDATE meta SET v = ? WHERE k = 'cluster'",
	"UPDATE meta SET v = ? WHERE k = 'node'",
	"UPDATE meta SET v = ? WHERE k = 'term'",
	"UPDATE meta SET v = ? WHERE k = 'vote'",
	"UPDATE meta SET v = ? WHERE k = 'applied'",
	"UPDATE meta SET v = ? WHERE k = 'snap_index'",
	"UPDATE meta SET v = ? WHERE k = 'snap_term'",
	"UPDATE meta SET v = ? WHERE k = 'conf_index'",
	"UPDATE meta SET v = ? WHERE k = 'conf'",
	"UPDATE log SET term = ?",
	"UPDATE log SET type = ?",
	"UPDATE log SET data = ?",
	"UPDATE log SET idx = ? WHERE idx = (SELECT max(idx) FROM log)",
	"UPDATE node SET name = ?",
	"UPDATE node SET address = ?",
	"UPDATE node SET role = ?",
	"UPDATE node SET capacity = ?",
	"UPDATE member SET role = ?",
	"UPDATE segment SET name = ?",
	"UPDATE segment SET dst_name = ?",
	"UPDATE segment SET phase = ?",
	"UPDATE segment SET size = ?",
	"UPDATE name SET name = ?",
	"UPDATE name SET segment = ?",
	"UPDATE extent SET len = ?",
	"UPDATE hint SET addr = ?",
	"UPDATE result SET reply = ?",
	"UPDATE counter SET v = ?",
};

static char path[128];
static uint8_t *right;
static size_t right_len;
static bool died;

static void fatal(void *arg, const char *text)
{
	(void)arg;
	fuzz_rule(text && text[0]);
	died = true;
}

static void fill(struct journal *j)
{
	struct raft_entry noop = {.term = 1, .type = RAFT_NOOP};
	struct segment_row row = {.id = 4097,
				  .epoch = 3,
				  .phase = SEGMENT_STABLE,
				  .node = 1,
				  .node_inc = 9,
				  .name = "cache",
				  .size = 123};
	struct meta_reply reply = {.id = 4097};
	struct journal_state state;
	uint64_t addr;

	journal_state(j, &state);
	fuzz_rule(journal_begin(j, true) == 0);
	for (uint64_t i = 1; i < 4; i++)
		fuzz_rule(journal_append(j, state.last_index + i, &noop) == 0);
	fuzz_rule(journal_put_segment(j, &row) == 0);
	fuzz_rule(journal_put_name(j, 1, "cache", 4097, false) == 0);
	fuzz_rule(journal_find_extent(j, UINT64_C(1) << 26, &addr) == 0);
	fuzz_rule(journal_put_extent(j, 4097, addr, UINT64_C(1) << 26) == 0);
	fuzz_rule(journal_put_result(j, (struct meta_command_id){1, 2}, &reply, 2) == 0);
	fuzz_rule(journal_commit(j) == 0);
}

static void make_right(void)
{
	struct journal_config config = {.path = path, .fatal = fatal};
	struct journal *journal;
	FILE *in;

	fuzz_found_journal(path, sizeof(path));
	fuzz_rule(journal_open(&config, &journal, NULL) == 0);
	fill(journal);
	journal_close(journal);
	right = malloc(1 << 20);
	in = fopen(path, "re");
	fuzz_rule(right && in);
	right_len = fread(right, 1, 1 << 20, in);
	fclose(in);
	fuzz_rule(right_len > 4096 && right_len < 1 << 20);
}

static void put_file(const uint8_t *bytes, size_t len)
{
	FILE *out = fopen(path, "we");

	fuzz_rule(out && fwrite(bytes, 1, len, out) == len && fclose(out) == 0);
}

static void change_column(struct fuzz_in *in)
{
	const char *column = columns[fuzz_u8(in) % (sizeof(columns) / sizeof(columns[0]))];
	size_t len = fuzz_u8(in);
	sqlite3_stmt *st;
	sqlite3 *db;

	if (sqlite3_open(path, &db) == SQLITE_OK &&
	    sqlite3_prepare_v2(db, column, -1, &st, NULL) == SQLITE_OK) {
		if (len) {
			len = len < in->left ? len : in->left;
			sqlite3_bind_blob(st, 1, in->at, (int)len, SQLITE_STATIC);
			in->at += len;
			in->left -= len;
		} else {
			uint64_t low = fuzz_u16(in);

			sqlite3_bind_int64(st, 1,
					   (sqlite3_int64)(low | (uint64_t)fuzz_u16(in) << 48));
		}
		sqlite3_step(st);
		sqlite3_finalize(st);
	}
	sqlite3_close(db);
}

static void change_byte(struct fuzz_in *in)
{
	static uint8_t bytes[1 << 20];
	FILE *file = fopen(path, "re");
	size_t len, at = fuzz_u16(in) | (size_t)fuzz_u8(in) << 16;

	fuzz_rule(file);
	len = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	if (!len)
		return;
	bytes[at % len] = fuzz_u8(in);
	put_file(bytes, len);
}

static int look(void *arg, const struct node_row *row)
{
	struct segment_row segment;

	fuzz_rule(memchr(row->name, 0, sizeof(row->name)));
	fuzz_rule(memchr(row->address, 0, sizeof(row->address)));
	if (journal_get_segment(arg, 4097, &segment) == 0)
		fuzz_rule(memchr(segment.name, 0, sizeof(segment.name)) &&
			  memchr(segment.dst_name, 0, sizeof(segment.dst_name)));
	return 0;
}

static void read_all(struct journal *j)
{
	struct journal_reader *reader;
	struct segment_row segment;
	struct meta_reply reply;
	struct node_row node;

	journal_walk_nodes(j, look, j);
	journal_get_result(j, (struct meta_command_id){1, 2}, &reply);
	if (journal_reader_open(path, NULL, &reader, NULL))
		return;
	if (journal_read_segment(reader, 4097, &segment) == 0)
		fuzz_rule(memchr(segment.name, 0, sizeof(segment.name)));
	if (journal_read_node(reader, 1, &node) == 0)
		fuzz_rule(memchr(node.name, 0, sizeof(node.name)));
	journal_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct replica_config config = {.journal = {.path = path, .fatal = fatal}};
	struct fuzz_in in = {data, size};
	struct ramp_err err = {0};
	struct replica *replica;
	char other[160];

	if (!right)
		make_right();
	put_file(right, right_len);
	for (int i = 0; i < 2; i++) {
		snprintf(other, sizeof(other), "%s-%s", path, i ? "shm" : "wal");
		unlink(other);
	}
	died = false;
	while (in.left) {
		if (fuzz_u8(&in) & 1)
			change_column(&in);
		else
			change_byte(&in);
	}
	if (replica_open(&config, 1, &replica, &err)) {
		fuzz_rule(err.code && err.text[0]);
		return 0;
	}
	read_all(replica_journal(replica));
	replica_close(replica);
	return 0;
}

void fuzz_seeds(void)
{
	fuzz_seed("a-byte", "\0\144\0\0\1", 5);
	fuzz_seed("no-type", "\1\12\0\143\0\0\0", 7);
	fuzz_seed("a-blob", "\1\15\3abc", 6);
	fuzz_seed("another-conf", "\1\10\4abcd", 7);
}
