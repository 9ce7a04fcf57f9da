#include "core.h"

#include <stdbool.h>
#include <stddef.h>

#include "attach.h"
#include "fork.h"
#include "guard.h"
#include "lock.h"
#include "say.h"
#include "thread_count.h"

void core_init(void (*first)(void), bool silent)
{
	static _Atomic bool done;
	static struct futex_lock lock;
	struct signal_guard guard;

	if (done)
		return;
	guard_enter(&guard);
	futex_lock(&lock);
	if (!done) {
		if (first)
			first();
		say_init(silent);
		attach_init();
		thread_count_init();
		fork_init();
	}
	done = true;
	futex_unlock(&lock);
	guard_leave(&guard);
}
