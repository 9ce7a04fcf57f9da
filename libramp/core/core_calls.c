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

/* Of a child that shares its parent's memory (vfork) nothing is unmapped. */
int core_call_unmap(void *addr, size_t length)
{
	return table_near(addr, length) && fork_settle() ? remap_munmap(addr, length, unmap_rest)
							 : -EINVAL;
}
