#include "core_calls.h"

#include <errno.h>

#include "fork.h"
#include "remap.h"
#include "table.h"

/* Of a child that shares its parent's memory (vfork) nothing is unmapped. */
int core_call_unmap(void *addr, size_t length, uint8_t session)
{
	return table_near(addr, length) && fork_settle() ? remap_munmap_of(addr, length, session)
							 : -EINVAL;
}
