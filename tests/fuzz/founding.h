/* The journal that the fuzzers of its contents begin with: one node, no segments. */
#ifndef RAMP_TESTS_FUZZ_FOUNDING_H
#define RAMP_TESTS_FUZZ_FOUNDING_H

#include <stdio.h>

#include "fuzz.h"
#include "meta/journal.h"
#include "meta/journal_create.h"

/* Writes the path of a journal in the fuzzer's folder to `path` and makes it. */
static inline void fuzz_found_journal(char *path, size_t len)
{
	struct node_row node = {.node = 1, .name = "a", .address = "h:1", .capacity = 1 << 30};
	struct meta_founding founding = {
		.instance = 1,
		.self = 1,
		.arena_addr = UINT64_C(1) << 45,
		.arena_len = UINT64_C(1) << 45,
		.nodes = &node,
		.n_nodes = 1,
	};

	snprintf(path, len, "%s/journal", fuzz_dir());
	fuzz_rule(journal_create(path, NULL, &founding, NULL) == 0);
}

#endif
