#include "core_calls.h"

#include <errno.h>

#include "fork.h"
#include "remap.h"
#include "sys.h"
#include "table.h"

static int unmap_rest(void *addr, size_t length)
{
	int rc = sys_munmap((uint64_t)(uintptr_t)addr, length);

	if (!rc)
		return 0;
	errno = -rc;
	return -1;
}

/* False: nothing was ever mapped there, or this process shares the memory of another one (vfork). */
static bool is_ours(const void *addr, size_t length)
{
	return table_near(addr, length) && fork_settle();
}

int core_call_unmap(void *addr, size_t length)
{
	return is_ours(addr, length) ? remap_munmap(addr, length, unmap_rest) : -EINVAL;
}

int core_call_advise(void *addr, size_t length, int advice)
{
	int rc = is_ours(addr, length) ? remap_madvise(addr, length, advice) : -EINVAL;

	return rc == -ENOTTY ? sys_madvise((uint64_t)(uintptr_t)addr, length, advice) : rc;
}
