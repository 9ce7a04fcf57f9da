#include "guard.h"

#include <string.h>

#define GUARD_BYTE 0xfd
#define GUARD_MIX  UINT64_C(0x5bd1e995a1b2c3d4)

static uint64_t guard_word(const void *block, size_t asked)
{
	return asked ^ GUARD_MIX ^ (uintptr_t)block;
}

void guard_arm(void *block, uint64_t bytes, size_t asked)
{
	uint64_t word = guard_word(block, asked);

	memset((char *)block + asked, GUARD_BYTE, bytes - sizeof(word) - asked);
	memcpy((char *)block + bytes - sizeof(word), &word, sizeof(word));
}

int64_t guard_asked(const void *block, uint64_t bytes)
{
	const unsigned char *at = block;
	uint64_t word, asked;

	memcpy(&word, at + bytes - sizeof(word), sizeof(word));
	asked = guard_word(block, (size_t)word); /* mixed twice is as it was */
	if (asked > bytes - GUARD_BYTES)
		return -1;
	for (uint64_t i = asked; i < bytes - sizeof(word); i++) {
		if (at[i] != GUARD_BYTE)
			return -1;
	}
	return (int64_t)asked;
}

void guard_misuse(const struct heap_process *p, const void *block, uint64_t bytes)
{
	process_misuse(
		p, "the guard behind the block at %p (%llu bytes with the guard) was overwritten",
		block, (unsigned long long)bytes);
}

void guard_fill(void *block, uint64_t bytes)
{
	memset(block, HEAP_FREED_BYTE, bytes);
}

bool guard_filled(const void *block, uint64_t bytes)
{
	const unsigned char *at = block;

	return at[0] == HEAP_FREED_BYTE && memcmp(at, at + 1, bytes - 1) == 0;
}
