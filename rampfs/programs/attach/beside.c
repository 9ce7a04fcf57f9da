/*
 * Mappings of a segment that wait beside its place in a process.
 *
 * Happy path: while the program runs its agent maps the segment once more, somewhere (BACK), and the
 * daemon registers that mapping. In the window it takes the place of the one that the program uses, by
 * one mremap(2) (SWAP), so that no access comes in between. Mappings that the program has
 * unmapped or protected meanwhile count, as for any SWAP.
 *
 * How it fails: where the process may map no more (RLIMIT_AS), or has too many attachments, nothing has
 * changed for the program. Mappings that were not put in place are unmapped.
 */
#include "beside.h"

#include <errno.h>
#include <stdlib.h>

#include "attachments.h"
#include "base/session.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "replace.h"

struct beside {
	LIST_ENTRY(beside) link; /* of mseg->beside */
	struct client *client;	 /* a reference */
	uint64_t start, end, at; /* the attachment's, and where it is mapped beside that */
};

static uint32_t flags_of(struct programs *p, const struct mapped_segment *mseg)
{
	struct segment_row row;

	return !meta_segment(p->meta, mseg->id, &row) && row.pages == SEGMENT_PAGES_SMALL
		       ? SESSION_NOHUGE
		       : 0;
}

static void free_beside(struct beside *beside)
{
	LIST_REMOVE(beside, link);
	client_put(beside->client);
	free(beside);
}

int beside_make(struct programs *p, struct mapped_segment *mseg, const struct mapping_ref *ref,
		bool held, uint64_t until_ms)
{
	uint64_t len = ref->end - ref->start, at;
	uint32_t flags = flags_of(p, mseg);
	struct beside *beside = malloc(sizeof(*beside));
	int rc;

	if (!beside)
		return -ENOMEM;
	held &= ref->writable;
	rc = replace_map(mseg, ref, flags | (held ? SESSION_SECOND : 0), until_ms, &at);
	if (!rc) {
		/* A mapping that can't be stored into needs no protection. */
		if (held)
			rc = mseg_hold_stores(mseg, ref->client, at, at + len, ref->offset);
		else if (mseg->state == MSEG_CLOSED)
			rc = uffd_arm(ref->client, at, at + len);
		if (rc)
			replace_unmap(ref->client, at, len, until_ms);
	}
	if (rc) {
		free(beside);
		return rc;
	}
	*beside = (struct beside){
		.client = client_get(ref->client), .start = ref->start, .end = ref->end, .at = at};
	LIST_INSERT_HEAD(&mseg->beside, beside, link);
	return 0;
}

int beside_swap(struct mapped_segment *mseg, const struct mapping_ref *ref, uint64_t until_ms)
{
	struct beside *beside;
	int rc;

	LIST_FOREACH (beside, &mseg->beside, link)
		if (beside->client == ref->client && beside->start == ref->start &&
		    beside->end == ref->end)
			break;
	if (!beside)
		return -ENOENT;
	/* Where SWAP fails the agent has unmapped it. */
	rc = replace_swap(mseg, ref, beside->at, until_ms);
	free_beside(beside);
	return rc;
}

void beside_drop(struct mapped_segment *mseg, uint64_t until_ms)
{
	struct beside *next;

	for (struct beside *beside = LIST_FIRST(&mseg->beside); beside; beside = next) {
		next = LIST_NEXT(beside, link);
		replace_unmap(beside->client, beside->at, beside->end - beside->start, until_ms);
		free_beside(beside);
	}
}

size_t beside_places(const struct mapped_segment *mseg, const struct client *client,
		     struct address_range *places, size_t room)
{
	const struct beside *beside;
	size_t n = 0;

	LIST_FOREACH (beside, &mseg->beside, link)
		if (beside->client == client && n < room)
			places[n++] = (struct address_range){
				beside->at, beside->at + (beside->end - beside->start)};
	return n;
}
