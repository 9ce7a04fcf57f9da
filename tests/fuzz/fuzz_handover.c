/*
 * The file that one daemon leaves to the next (handover.c), and INIT's answer as it is patched. The
 * input is the file (after a byte: 1 keeps its head, which names the connection); a next daemon of
 * the same connection reads it, and continues with appends.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "mount/handover.h"

#define CONNECTION 77
#define HEAD_BYTES 24 /* magic, version, connection */
#define FILE_BYTES 4096

/* The file of a daemon that ended in the middle of two appends. */
static void make_file(uint8_t file[FILE_BYTES])
{
	uint8_t init[104] = {104, 0, 0, 0, 26}, reply[64] = {7, 0, 0, 0, 39};
	struct handover_append *slot;
	int fd = fuzz_file("", 0), ours = dup(fd);
	struct handover *h;
	uint64_t offset;

	fuzz_rule(handover_open(fd, CONNECTION, &h, NULL) == 0);
	fuzz_rule(handover_save_init(h, init, sizeof(init)) == 0);
	handover_save_reply(h, reply, sizeof(reply));
	fuzz_rule(handover_append_begin(h, 5, 4097, 100, 10, &slot, &offset) == 0);
	fuzz_rule(handover_append_begin(h, 6, 4097, 100, 10, &slot, &offset) == 0);
	fuzz_rule(pread(ours, file, FILE_BYTES, 0) == FILE_BYTES);
	handover_close(h);
	close(ours);
}

static void patch(struct handover *h)
{
	uint8_t reply[HANDOVER_INIT_BYTES];
	size_t in_len, out_len;
	const void *in = handover_init(h, &in_len), *out = handover_reply(h, &out_len);

	fuzz_rule(in_len <= HANDOVER_INIT_BYTES && out_len <= HANDOVER_INIT_BYTES);
	if (!in || !out)
		return;
	memcpy(reply, out, out_len);
	handover_patch_reply(in, in_len, reply, out_len);
}

static void append(struct handover *h, uint64_t unique, uint64_t size)
{
	struct handover_append *slot, *again;
	uint64_t offset, second;
	int rc;

	if (handover_append_done(h, unique, &offset))
		return;
	rc = handover_append_begin(h, unique, 4097, size, 10, &slot, &offset);
	if (rc < 0)
		return;
	fuzz_rule(rc != HANDOVER_NEW || offset >= size);
	fuzz_rule(handover_append_begin(h, unique, 4097, size, 10, &again, &second) ==
		  HANDOVER_BEGUN);
	fuzz_rule(again == slot && second == offset);
	handover_append_written(slot, 9);
	fuzz_rule(handover_append_done(h, unique, &second) && second == 9);
	handover_append_end(slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t right[FILE_BYTES];
	uint8_t file[FILE_BYTES] = {0};
	struct fuzz_in in = {data, size};
	bool as_it_is = fuzz_u8(&in) & 1;
	size_t len = in.left < FILE_BYTES ? in.left : FILE_BYTES;
	uint64_t keep[2] = {5, 6};
	struct handover *h;

	if (!right[0])
		make_file(right);
	if (len)
		memcpy(file, in.at, len);
	if (!as_it_is)
		memcpy(file, right, HEAD_BYTES);
	if (handover_open(fuzz_file(file, FILE_BYTES), CONNECTION, &h, NULL))
		return 0;
	patch(h);
	append(h, 5, 100);
	append(h, 99, UINT64_C(1) << 40);
	handover_append_drop(h, 6);
	handover_forget_others(h, keep, 2);
	handover_close(h);
	return 0;
}

void fuzz_seeds(void)
{
	uint8_t bytes[1 + FILE_BYTES] = {0};

	make_file(bytes + 1);
	/* The other slots are zeros. */
	fuzz_seed("appends", bytes, 701);
	bytes[0] = 1;
	fuzz_seed("as-it-is", bytes, 701);
}
