#include "lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys.h"

bool futex_lock_for(struct futex_lock *lock, uint32_t timeout_ms)
{
	uint64_t end_ms = 0;
	uint32_t word = 0;

	if (atomic_compare_exchange_strong(&lock->word, &word, 1))
		return true;
	if (timeout_ms != UINT32_MAX)
		end_ms = clock_ms() + timeout_ms;
	while (atomic_exchange(&lock->word, 2) != 0) {
		if (end_ms && clock_ms() >= end_ms)
			return false;
		sys_futex_wait(&lock->word, 2, end_ms ? timeout_ms : 1000);
	}
	return true;
}

void futex_lock(struct futex_lock *lock)
{
	futex_lock_for(lock, UINT32_MAX);
}

void futex_unlock(struct futex_lock *lock)
{
	if (atomic_exchange(&lock->word, 0) == 2)
		syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
