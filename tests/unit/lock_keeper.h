/*
 * A program that holds the lock of a segment's file: it was handed a descriptor, and is in the middle
 * of a write(2) of a page that does not come.
 */
#ifndef LOCK_KEEPER_H
#define LOCK_KEEPER_H

#include <pthread.h>
#include <stdint.h>

#include "memory/store.h"

struct lock_keeper {
	int fd, uffd;
	uint8_t *bytes; /* the bytes that it writes */
	pthread_t thread;
};

/* Returns when the lock is taken. It writes at page `page` of the file, which becomes data by that
   where it is none yet. */
void lock_keep(struct lock_keeper *keeper, struct seg *seg, uint64_t page);
/* The write has failed: nothing was written. */
void lock_let_go(struct lock_keeper *keeper);

#endif
