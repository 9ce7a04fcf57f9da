/*
 * Snapshots (journal_dump.c): rows that another node sent. The input is the payload of a dump's
 * frames; the harness makes frames of it, with their numbers and checksums (the first byte: the
 * length of each; 0: the input is the whole dump as it is). A dump that journal_dump_valid accepts
 * is restored in a turn that is rolled back, after every table has been read through the writer:
 * wild rows may make the journal dead (its error is fatal in production), and no more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "founding.h"
#include "meta/journal_dump.h"
#include "meta/journal_nodes.h"
#include "meta/journal_results.h"
#include "meta/journal_segments.h"

#define DUMP_BYTES (256u << 10)

static struct journal *journal;
static char path[128];
static bool died;

static void fatal(void *arg, const char *text)
{
	(void)arg;
	fuzz_rule(text && text[0]);
	died = true;
}

static void fresh(void)
{
	struct journal_config config = {.path = path, .fatal = fatal};

	if (!path[0])
		fuzz_found_journal(path, sizeof(path));
	fuzz_rule(journal_open(&config, &journal, NULL) == 0);
	died = false;
}

static size_t make_dump(uint8_t *dump, struct fuzz_in *in)
{
	size_t frame = (size_t)fuzz_u8(in) * 16, n;
	uint32_t number = 0;
	struct wire_w w;

	wire_w_init(&w, dump, DUMP_BYTES);
	if (!frame) {
		wire_put_bytes(&w, in->at, in->left);
		return w.bad ? 0 : w.len;
	}
	do {
		n = in->left < frame ? in->left : frame;
		wire_put_u32(&w, number++);
		wire_put_u32(&w, wire_crc32c(in->at, n));
		wire_put_blob(&w, in->at, n);
		in->at += n;
		in->left -= n;
	} while (n);
	return w.bad ? 0 : w.len;
}

static int look(void *arg, const struct node_row *row)
{
	struct segment_row segment;
	ramp_segment_t id;

	(void)arg;
	fuzz_rule(memchr(row->name, 0, sizeof(row->name)));
	fuzz_rule(memchr(row->address, 0, sizeof(row->address)));
	journal_find_orphan(journal, row->node, row->incarnation, &id);
	if (journal_get_segment(journal, 4096 + row->node, &segment) == 0)
		fuzz_rule(memchr(segment.name, 0, sizeof(segment.name)) &&
			  memchr(segment.dst_name, 0, sizeof(segment.dst_name)));
	return 0;
}

static void read_all(void)
{
	struct meta_reply reply;
	uint64_t sum, life, lowest, addr;
	ramp_segment_t id;
	enum raft_role role;
	bool reserved;

	journal_walk_nodes(journal, look, NULL);
	journal_get_name(journal, 1, "cache", &id, &reserved);
	journal_get_member(journal, 1, &role);
	journal_get_result(journal, (struct meta_command_id){1, 2}, &reply);
	journal_get_floor(journal, 1, &life, &lowest);
	journal_find_extent(journal, UINT64_C(1) << 26, &addr);
	journal_tables_sum(journal, &sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t dump[DUMP_BYTES];
	struct fuzz_in in = {data, size};
	struct raft_conf conf = {.n = 1, .member = {{1, RAFT_VOTER}}};
	struct raft_data *encoded;
	size_t len;

	if (size < 2)
		return 0;
	len = make_dump(dump, &in);
	if (!len || !journal_dump_valid(dump, len))
		return 0;
	if (!journal)
		fresh();
	encoded = raft_conf_encode(&conf);
	fuzz_rule(journal_begin(journal, false) == 0);
	if (journal_restore(journal, dump, len, 7, 3, encoded, 1) == 0)
		read_all();
	else
		fuzz_rule(died);
	journal_rollback(journal);
	raft_data_unref(encoded);
	if (died) {
		journal_close(journal);
		journal = NULL;
	}
	return 0;
}

static void fill(struct journal *j)
{
	struct segment_row row = {.id = 4097,
				  .epoch = 3,
				  .phase = SEGMENT_STABLE,
				  .node = 1,
				  .node_inc = 9,
				  .name = "cache",
				  .size = 123};
	struct meta_reply reply = {.id = 4097};
	uint64_t addr;

	fuzz_rule(journal_put_segment(j, &row) == 0);
	fuzz_rule(journal_put_name(j, 1, "cache", 4097, false) == 0);
	fuzz_rule(journal_find_extent(j, UINT64_C(1) << 26, &addr) == 0);
	fuzz_rule(journal_put_extent(j, 4097, addr, UINT64_C(1) << 26) == 0);
	fuzz_rule(journal_put_result(j, (struct meta_command_id){1, 2}, &reply, 2) == 0);
	fuzz_rule(journal_put_floor(j, 1, 2, 3) == 0);
	fuzz_rule(journal_put_past(j, 1, 8) == 0);
}

void fuzz_seeds(void)
{
	static uint8_t whole[DUMP_BYTES], rows[DUMP_BYTES];
	size_t whole_len = 1, rows_len = 1, len;
	struct journal_dump *d;
	const uint8_t *bytes;
	uint64_t offset = 0;
	bool done = false;

	fresh();
	fuzz_rule(journal_begin(journal, true) == 0);
	fill(journal);
	fuzz_rule(journal_commit(journal) == 0);
	fuzz_rule(journal_dump_open(journal, &d, NULL) == 0);
	for (; !done; offset += len) {
		fuzz_rule(journal_dump_read(d, offset, &bytes, &len, &done) == 0);
		memcpy(whole + whole_len, bytes, len);
		memcpy(rows + rows_len, bytes + 12, len - 12);
		whole_len += len;
		rows_len += len - 12;
	}
	rows[0] = 255;
	fuzz_seed("whole", whole, whole_len);
	fuzz_seed("rows", rows, rows_len);
	journal_dump_close(d);
	journal_close(journal);
}
