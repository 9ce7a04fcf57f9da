/*
 * What the core does for the library of the C API, as a table of functions.
 *
 * A process has one core: one mapping table, and one agent for each daemon. The shim exports its
 * table, and libramp.so uses that where the shim is loaded, and its own core where it is not. The
 * symbol's number is the version of the table: a library of another version does not find it, and
 * refuses to map in that process.
 */
#ifndef RAMP_CORE_CALLS_H
#define RAMP_CORE_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "attach.h"

struct core_calls {
	void (*init)(void); /* before any other; may be called again */
	/* attach_mmap (attach.h). */
	int (*map)(const struct attach_call *call, uint64_t *at);
	/* munmap(2) of what `map` has mapped, with the `session` that it gave: what another mount of
	   this machine has put in its place since stays. 0 or a negative errno. */
	int (*unmap)(void *addr, size_t length, uint8_t session);
};

/* The shim's. */
extern const struct core_calls rampfs_core_1;

int core_call_unmap(void *addr, size_t length, uint8_t session);

#endif
