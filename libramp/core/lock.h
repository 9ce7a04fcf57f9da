/*
 * A lock between threads, made of one futex.
 */
#ifndef RAMP_LOCK_H
#define RAMP_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: free. */
struct futex_lock {
	_Atomic uint32_t word; /* 0 free, 1 held, 2 held and waited for */
};

void futex_lock(struct futex_lock *lock);
/* Returns false where the lock could not be taken within that time. UINT32_MAX: waits for ever. */
bool futex_lock_for(struct futex_lock *lock, uint32_t timeout_ms);
void futex_unlock(struct futex_lock *lock);

#endif
