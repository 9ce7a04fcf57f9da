/*
 * Gives access back after a revoke, or after a segment was closed to stores.
 *
 * Page tables that were moved away are moved back first, over whatever has taken their place meanwhile;
 * then nothing stays registered, and accesses that wait continue. An agent that does not answer does its part
 * later (move_away.c).
 */
#include "thaw.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/kernel.h"
#include "programs/attach/attachments.h"
#include "programs/attach/beside.h"
#include "programs/attach/move_away.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"

#define UNMAP_MS 1000u

void thaw(struct programs *p, struct mapped_segment *mseg)
{
	struct mapping_ref *refs;
	size_t count;

	mseg->prelook.armed = false;
	beside_drop(mseg, clock_ms() + UNMAP_MS);
	move_away_return(p, mseg);
	mseg_go(p, mseg, mseg->state, MSEG_OPEN);
	if (mseg_refs(mseg, &refs, &count))
		abort(); /* programs would wait for ever; the next daemon unregisters them */
	for (size_t i = 0; i < count; i++)
		if (refs[i].gone)
			continue;
		else if (mseg->pulling)
			kernel_uffd_wake(refs[i].client->uffd, refs[i].start,
					 refs[i].end - refs[i].start);
		else
			uffd_disarm(refs[i].client, refs[i].start, refs[i].end);
	mapping_refs_free(refs, count);
}
