/*
 * Programs are told before their stores find the store full (full_store.c).
 */
#ifndef RAMP_PROGRAMS_FULL_STORE_H
#define RAMP_PROGRAMS_FULL_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct programs;
struct client;

struct full_store {
	struct programs *programs;
	uint64_t say_again_ms;	 /* control thread */
	atomic_bool full;	 /* or nearly */
	_Atomic uint64_t new_ms; /* when a new program was told last */
};

/* Looks at the store, and tells all programs and the log when it has become nearly full. Returns in
   how many ms to look again. Control thread. */
uint32_t full_store_look(struct full_store *full);
/* Tells a program that has come now, if the store is nearly full. A worker. */
void full_store_tell_new(struct full_store *full, struct client *client);

#endif
