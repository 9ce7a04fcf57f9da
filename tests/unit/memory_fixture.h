/*
 * A store of its own for each test: a private mount namespace, so that no mount outlives the
 * program however it ends, and a state directory in it.
 */
#ifndef RAMP_MEMORY_FIXTURE_H
#define RAMP_MEMORY_FIXTURE_H

#include <check.h>
#include <stdint.h>

#include "memory/pages.h"
#include "memory/record.h"
#include "memory/reserve.h"
#include "memory/store.h"

#define MEMORY_CAPACITY (UINT64_C(64) << 20)
#define MEMORY_ID	UINT64_C(4711)

/* Called first in main: makes the namespace. Returns 0, or 77 (skipped) if this is not root. */
int memory_namespace(void);
/* Makes a fresh state directory with an empty store of `capacity` bytes; a failure ends the test. */
void memory_fresh(uint64_t capacity);
/* Makes and opens another store beside it, in a state directory of that name. */
struct store *memory_beside(const char *name, uint64_t capacity);
/* Opens that one again, as it was left. */
struct store *memory_again(const char *name, uint64_t capacity);
/* Returns the state directory of memory_fresh. */
const char *memory_dir(void);
/* Opens that store (again). */
struct store *memory_open(void);
/* Writes `byte` over [offset, offset + len) of a segment. */
void memory_fill(struct seg *seg, uint8_t byte, uint64_t offset, uint64_t len);
/* Stores into one page of it, which is a small page then (write(2) may take more around it). */
void memory_small_page(struct seg *seg, uint8_t byte, uint64_t page);
uint64_t memory_blocks_bytes(struct seg *seg);
/* Runs a suite, and removes the state directories. */
int memory_run(Suite *suite);

#endif
