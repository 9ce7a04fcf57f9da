/*
 * The heap in a segment against a model: any order of calls, sizes from nothing to more than there is, alignments, and the
 * same memory closed, opened again or left as a killed process would. A block keeps its bytes until it is freed; no two
 * overlap; the heap is sound all the time, and has exactly the model's blocks.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "include/ramp_heap.h"

#define BASE  ((char *)0x200000000000)
#define BEGIN (UINT64_C(1) << 20)
#define MOST  (UINT64_C(12) << 20)
#define SLOTS 64

static int file = -1;
static uint64_t file_size, limit;
static struct ramp_heap *heap;
static struct ramp_heap_err err;

struct model {
	unsigned char *at;
	size_t size, align;
	unsigned char byte;
};
static struct model model[SLOTS];
static void **table; /* in the heap, for alloc_to */

static int grow(void *arg, uint64_t size)
{
	(void)arg;
	if (size > limit)
		return -ENOSPC;
	fuzz_rule(size > file_size && ftruncate(file, (off_t)size) == 0);
	file_size = size;
	return 0;
}

static void misuse(void *arg, const char *text)
{
	(void)arg;
	fuzz_broken(text, 0, "no misuse is named");
}

static void map_file(void)
{
	if (file < 0)
		file = memfd_create("heap", MFD_CLOEXEC);
	fuzz_rule(ftruncate(file, 0) == 0 && ftruncate(file, BEGIN) == 0);
	file_size = BEGIN;
	fuzz_rule(mmap(BASE, MOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
		  BASE);
}

static bool filled(const struct model *m)
{
	for (size_t i = 0; i < m->size; i++) {
		if (m->at[i] != m->byte)
			return false;
	}
	return true;
}

/* Notes a block that the heap gave: it lies in the heap, over no other one. */
static void note(struct model *m, void *at, size_t size, size_t align)
{
	static unsigned char next;

	fuzz_rule((char *)at >= BASE && (char *)at + size <= BASE + file_size &&
		  (uintptr_t)at % align == 0);
	fuzz_rule(ramp_heap_usable_size(heap, at) >= size);
	for (int i = 0; i < SLOTS; i++) {
		const struct model *o = &model[i];

		fuzz_rule(o == m || !o->at || (unsigned char *)at + size <= o->at ||
			  o->at + o->size <= (unsigned char *)at);
	}
	*m = (struct model){.at = at, .size = size, .align = align, .byte = ++next};
	memset(at, m->byte, size);
}

/* Sizes of all kinds, and few large ones. */
static size_t some_size(struct fuzz_in *in)
{
	uint16_t n = fuzz_u16(in);

	switch (n & 7) {
	case 0:
		return (size_t)n << 5; /* up to 2 MiB */
	case 1:
		return n >> 1;
	case 2:
		return 32768u + (n >> 12) - 8;
	default:
		return n >> 7;
	}
}

static void take(struct fuzz_in *in, struct model *m, unsigned int how)
{
	size_t size = some_size(in), align = 16;
	void *at;

	if (how == 0)
		at = ramp_heap_malloc(heap, size);
	else if (how == 1) {
		at = ramp_heap_calloc(heap, 1, size);
		for (size_t i = 0; at && i < size; i++)
			fuzz_rule(((char *)at)[i] == 0);
	} else if (how == 2) {
		align = (size_t)1 << fuzz_u8(in) % 20;
		at = ramp_heap_aligned_alloc(heap, align, size);
	} else {
		at = ramp_heap_alloc_to(heap, &table[m - model], size);
		fuzz_rule(table[m - model] == at);
	}
	if (at)
		note(m, at, size, align);
}

static void give(struct model *m, unsigned int how)
{
	fuzz_rule(filled(m));
	if (table[m - model])
		ramp_heap_free_from(heap, &table[m - model]);
	else if (how == 0)
		ramp_heap_free(heap, m->at);
	else
		ramp_heap_free_aligned_sized(heap, m->at, m->align, m->size);
	m->at = NULL;
}

static void change(struct fuzz_in *in, struct model *m)
{
	size_t size = some_size(in), kept = size < m->size ? size : m->size;
	struct model was = *m;
	unsigned char *at;

	fuzz_rule(filled(m));
	at = ramp_heap_realloc(heap, m->at, size);
	if (!at)
		return;
	if (table[m - model])
		table[m - model] = NULL;
	was.at = at;
	was.size = kept;
	fuzz_rule(filled(&was));
	note(m, at, size, 16);
}

static int find_block(void *arg, void *at, size_t usable)
{
	int *found = arg;

	if (at == (void *)table)
		return 0;
	for (int i = 0; i < SLOTS; i++) {
		if (model[i].at == at && usable >= model[i].size) {
			++*found;
			return 0;
		}
	}
	return 1; /* no block of the model's */
}

static void check(void)
{
	int found = 0, known = 0;

	fuzz_rule(ramp_heap_check(heap, &err) == 0);
	fuzz_rule(ramp_heap_each(heap, find_block, &found) == 0);
	for (int i = 0; i < SLOTS; i++)
		known += model[i].at != NULL;
	fuzz_rule(found == known);
}

static void open_again(bool clean)
{
	struct ramp_heap_options options = {.grow = grow, .misuse = misuse};

	fuzz_rule((clean ? ramp_heap_close(heap) : ramp_heap_forget(heap)) == 0);
	heap = ramp_heap_open(BASE, file_size, &options, &err);
	fuzz_rule(heap != NULL);
	fuzz_rule(ramp_heap_root(heap) == (void *)table);
}

static void step(struct fuzz_in *in)
{
	uint8_t what = fuzz_u8(in);
	struct model *m = &model[what % SLOTS];

	switch (what / SLOTS) {
	case 0:
	case 1:
		if (!m->at)
			take(in, m, fuzz_u8(in) % 4);
		else
			give(m, what / SLOTS);
		return;
	case 2:
		if (m->at)
			change(in, m);
		return;
	default:
		break;
	}
	if (what % SLOTS < 8)
		check();
	else if (what % SLOTS < 16)
		open_again(what & 1);
	else if (what % SLOTS < 24)
		ramp_heap_trim(heap);
	else if (!m->at)
		take(in, m, 0);
	else
		give(m, 0);
}

/* The input: how the heap is, then calls. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	uint8_t kind = fuzz_u8(&in);
	struct ramp_heap_options options = {.max_bytes = MOST,
					    .flags = kind & 1 ? RAMP_HEAP_DEBUG : 0,
					    .grow = grow,
					    .misuse = misuse};

	limit = kind & 2 ? MOST : BEGIN + (BEGIN >> 1);
	map_file();
	memset(model, 0, sizeof(model));
	heap = ramp_heap_format(BASE, BEGIN, &options, &err);
	fuzz_rule(heap != NULL);
	table = ramp_heap_calloc(heap, SLOTS, sizeof(*table));
	fuzz_rule(table && ramp_heap_set_root(heap, table) == 0);
	while (in.left)
		step(&in);
	check();
	for (int i = 0; i < SLOTS; i++) {
		if (model[i].at)
			give(&model[i], 0);
	}
	ramp_heap_trim(heap);
	check();
	fuzz_rule(ramp_heap_close(heap) == 0);
	return 0;
}

void fuzz_seeds(void)
{
	uint8_t bytes[600];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37 + i / 7);
	bytes[0] = 2;
	fuzz_seed("grows", bytes, sizeof(bytes));
	bytes[0] = 0;
	fuzz_seed("full", bytes, sizeof(bytes));
	bytes[0] = 3;
	fuzz_seed("debug", bytes, sizeof(bytes));
}
