/*
 * Watches which pages of a segment programs store into, by the page tables of the programs.
 *
 * Happy path: each writable attachment is registered for write protection with WP_ASYNC, and its pages
 * are write-protected (armed). The first store into such a page makes the kernel lift that by itself,
 * and PAGEMAP_SCAN then calls the page WRITTEN. A look asks twice: which pages are surely not stored
 * into, and then, in one step with the next arming, which are WRITTEN. All others count as stored
 * into: so a page whose entry was dropped, split or never made is sent once too often, and none is
 * missed. After a revoke the page tables lie in the places to which they were moved (away.h). Huge pages
 * are armed whole, and split where they are stored into again and again (split.c).
 *
 * How it fails: attachments that come, go or change between two looks make all pages count (their page
 * tables say nothing of the time before). So do a mapping that is not registered any more, and a
 * process that has ended. Pins pass all this: pins.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/kernel.h"
#include "base/page.h"
#include "last_look.h"
#include "memory/pages.h"
#include "pins.h"
#include "prelook.h"
#include "programs/attach/attachments.h"
#include "programs/client/away.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/programs.h"
#include "split.h"

/* The attachments that are armed. */
struct watch {
	struct mapping_ref *refs;
	size_t count;
	struct prelook counts;
	struct page_set split; /* the first pages of huge ones that were split */
	const char *all;       /* why the last look made all pages count; NULL: it did not */
};

struct watched_data {
	const struct data_range *ranges;
	uint32_t count;
	struct page_set *stored;
	bool *dropped; /* becomes true where page tables are not where a revoke moves them */
};

static void watch_free(struct mapped_segment *mseg)
{
	if (!mseg->watch)
		return;
	mapping_refs_free(mseg->watch->refs, mseg->watch->count);
	page_set_free(&mseg->watch->split);
	free(mseg->watch);
	mseg->watch = NULL;
}

static void add_all(const struct watched_data *data)
{
	for (uint32_t i = 0; i < data->count; i++)
		page_set_add(data->stored, data->ranges[i].offset / RAMP_PAGE_BYTES,
			     page_count(data->ranges[i].len));
}

/* ---- one look at one attachment ------------------------------------------------------------- */

/* A part of an attachment: where its page table is, and the page of the segment at `start`. */
struct part {
	struct page_set *stored;
	uint64_t start, end, page;
	uint64_t at; /* up to here it is known */
};

static void add_between(const struct part *part, uint64_t start, uint64_t end)
{
	if (start < end)
		page_set_add(part->stored, part->page + (start - part->start) / RAMP_PAGE_BYTES,
			     (end - start) / RAMP_PAGE_BYTES);
}

static void on_clean(void *arg, uint64_t start, uint64_t end)
{
	struct part *part = arg;

	add_between(part, part->at, start);
	if (end > part->at)
		part->at = end;
}

static void on_written(void *arg, uint64_t start, uint64_t end)
{
	add_between(arg, start, end);
}

/* Only a page with an entry that is not WRITTEN was surely not stored into. */
static int look_clean(const struct client *client, struct part *part)
{
	const struct kernel_page_kind clean = {.none = KERNEL_PAGE_WRITTEN,
					       .any = KERNEL_PAGE_PRESENT | KERNEL_PAGE_SWAPPED};
	int rc;

	part->at = part->start;
	rc = kernel_pagemap_each(client->mappings.pagemap, part->start, part->end, clean, false,
				 on_clean, part);
	add_between(part, part->at, part->end);
	return rc;
}

/* Arms whole huge pages: to arm a part of one would split it, and older kernels lose what is WRITTEN. */
static int look_and_arm(const struct mapping_ref *ref, uint64_t addr, uint64_t len, uint64_t page,
			struct page_set *stored)
{
	const struct kernel_page_kind written = {.all = KERNEL_PAGE_WRITTEN};
	struct part part = {.stored = stored, .start = addr, .end = addr + len, .page = page};
	uint64_t start = addr - addr % RAMP_HUGE_BYTES;
	uint64_t end = part.end + (RAMP_HUGE_BYTES - part.end % RAMP_HUGE_BYTES) % RAMP_HUGE_BYTES;
	int rc = look_clean(ref->client, &part);

	part.start = start > ref->start ? start : ref->start;
	part.end = end < ref->end ? end : ref->end;
	part.page -= (addr - part.start) / RAMP_PAGE_BYTES;
	return rc ? rc
		  : kernel_pagemap_each(ref->client->mappings.pagemap, part.start, part.end,
					written, true, on_written, &part);
}

/* After the revoke: where the page table has been moved away it is looked at there. */
static int look_last(const struct mapping_ref *ref, ramp_segment_t id, uint64_t addr, uint64_t len,
		     uint64_t page, const struct watched_data *data)
{
	while (len) {
		uint64_t some = len, where = away_where(ref->client, id, addr, &some);
		int rc;

		some = some < len ? some : len;
		if (!where) {
			where = addr;
			some = len;
			*data->dropped = true; /* what lies away behind it counts, too */
		}
		rc = last_look(&ref->client->mappings, where, where + some, page, data->stored);
		if (rc)
			return rc;
		addr += some;
		page += some / RAMP_PAGE_BYTES;
		len -= some;
	}
	return 0;
}

/* Looks at the parts of an attachment where the file has data. Whatever can't be looked at counts as
   stored into. */
static void look_at(const struct mapping_ref *ref, ramp_segment_t id, bool last,
		    const struct watched_data *data)
{
	for (uint32_t i = 0; i < data->count; i++) {
		uint64_t from = data->ranges[i].offset, to = from + data->ranges[i].len, addr;
		uint64_t end = ref->offset + (ref->end - ref->start);

		from = from > ref->offset ? from : ref->offset;
		to = to < end ? to : end;
		if (from >= to)
			continue;
		addr = ref->start + (from - ref->offset);
		if (last ? look_last(ref, id, addr, to - from, from / RAMP_PAGE_BYTES, data)
			 : look_and_arm(ref, addr, to - from, from / RAMP_PAGE_BYTES, data->stored))
			page_set_add(data->stored, from / RAMP_PAGE_BYTES, page_count(to - from));
	}
}

static bool may_store(const struct mapping_ref *ref)
{
	return ref->writable && !ref->gone;
}

static void look_at_all(const struct watch *w, ramp_segment_t id, bool last,
			const struct watched_data *data)
{
	for (size_t i = 0; i < w->count; i++)
		if (may_store(&w->refs[i]))
			look_at(&w->refs[i], id, last, data);
}

/* ---- whether the attachments are the same --------------------------------------------------- */

#define CHANGED "programs have mapped or unmapped it since the look before"
#define DROPPED                                                                                    \
	"page tables were dropped, not moved: memory is locked, its program is stopped, or has "   \
	"no room"

static bool same_refs(const struct watch *w, const struct mapping_ref *refs, size_t count)
{
	if (w->count != count)
		return false;
	for (size_t i = 0; i < count; i++)
		if (w->refs[i].client != refs[i].client || w->refs[i].start != refs[i].start ||
		    w->refs[i].end != refs[i].end || w->refs[i].offset != refs[i].offset ||
		    w->refs[i].gone != refs[i].gone || w->refs[i].writable != refs[i].writable ||
		    (may_store(&refs[i]) && client_dead(refs[i].client)))
			return false;
	return true;
}

/* change is held. */
static bool watch_holds(struct programs *p, struct mapped_segment *mseg,
			const struct mapping_ref *refs, size_t count)
{
	const struct watch *w = mseg->watch;
	struct prelook now = {0};

	return w && same_refs(w, refs, count) && prelook_count(p, mseg, refs, count, &now) &&
	       now.attaches == w->counts.attaches && now.remaps == w->counts.remaps &&
	       now.live == w->counts.live;
}

/* Registers what may be stored into. False: one of them is not there any more. */
static bool register_all(const struct watch *w)
{
	for (size_t i = 0; i < w->count; i++)
		if (may_store(&w->refs[i]) &&
		    kernel_uffd_register(w->refs[i].client->uffd, w->refs[i].start,
					 w->refs[i].end - w->refs[i].start,
					 UFFDIO_REGISTER_MODE_WP))
			return false;
	return true;
}

/* Watches the attachments that there are now; takes `refs`. All pages count as stored into, so what
   changes meanwhile does no harm: the next look finds that the watch does not hold. */
static int watch_new(struct programs *p, struct mapped_segment *mseg, struct mapping_ref *refs,
		     size_t count, const struct watched_data *data)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w) {
		mapping_refs_free(refs, count);
		return -ENOMEM;
	}
	/* The watch is there, too, when no program has the segment mapped. */
	if (!mseg->watch) {
		mseg_hold(p, mseg);
	} else {
		w->split = mseg->watch->split;
		mseg->watch->split = (struct page_set){0};
	}
	watch_free(mseg);
	mseg->watch = w;
	w->refs = refs;
	w->count = count;
	if (!prelook_count(p, mseg, refs, count, &w->counts) || !register_all(w))
		w->counts.attaches = UINT64_MAX; /* it does not hold */
	else
		look_at_all(w, mseg->id, false, data);
	add_all(data);
	w->all = CHANGED;
	return 0;
}

static int take_look(struct programs *p, struct mapped_segment *mseg,
		     const struct watched_data *data)
{
	struct mapping_ref *refs = NULL;
	size_t count = 0;

	mseg_look_all(p, mseg, NULL);
	if (mseg_refs(mseg, &refs, &count))
		return -ENOMEM;
	if (!watch_holds(p, mseg, refs, count))
		return watch_new(p, mseg, refs, count, data);
	look_at_all(mseg->watch, mseg->id, false, data);
	mseg->watch->all = NULL;
	mapping_refs_free(refs, count);
	return 0;
}

/* ---- programs.h ----------------------------------------------------------------------------- */

/* How many pages a set needs room for: whole huge pages are looked at. */
static uint64_t end_of(const struct data_range *ranges, uint32_t count)
{
	return count ? page_count(ranges[count - 1].offset + ranges[count - 1].len) +
			       RAMP_HUGE_BYTES / RAMP_PAGE_BYTES
		     : 0;
}

int programs_stored(struct programs *p, struct seg *seg, const struct data_range *ranges,
		    uint32_t count, struct page_set *stored, struct ramp_err *err)
{
	const struct watched_data data = {.ranges = ranges, .count = count, .stored = stored};
	struct mapped_segment *mseg = mseg_get(p, seg_id(seg));
	int rc;

	if (!mseg || page_set_fit(stored, end_of(ranges, count))) {
		if (mseg)
			mseg_put(p, mseg);
		return ramp_err_sys(err, ENOMEM, "watching stores");
	}
	rc = prelook_reach(mseg, err);
	if (!rc)
		rc = pins_look(mseg, err);
	if (!rc) {
		pthread_mutex_lock(&mseg->change);
		if (mseg->pulling || pages_lost(seg))
			rc = ramp_err_set(err, EBUSY, "pages of it are lost or missing");
		else if (mseg->state != MSEG_OPEN)
			rc = ramp_err_set(err, EBUSY, "it is being moved already");
		else if (take_look(p, mseg, &data))
			rc = ramp_err_sys(err, ENOMEM, "watching stores");
		pthread_mutex_unlock(&mseg->change);
	}
	mseg_put(p, mseg);
	return rc;
}

int programs_watch(struct programs *p, struct seg *seg, const struct data_range *ranges,
		   uint32_t count, struct ramp_err *err)
{
	struct page_set all = {0};
	int rc = programs_stored(p, seg, ranges, count, &all, err);

	page_set_free(&all);
	return rc;
}

/* change is held. */
static void look_for_last(struct programs *p, struct mapped_segment *mseg,
			  const struct mapping_ref *refs, size_t n_refs,
			  const struct watched_data *data)
{
	struct watch *w = mseg->watch;
	bool frozen = mseg->state == MSEG_FROZEN || mseg->state == MSEG_CLOSED;
	bool holds = frozen && watch_holds(p, mseg, refs, n_refs);

	if (holds)
		look_at_all(w, mseg->id, true, data);
	else
		add_all(data);
	if (w)
		w->all = !holds ? CHANGED : *data->dropped ? DROPPED : NULL;
}

const char *programs_stored_all(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	const char *all = NULL;

	if (!mseg)
		return NULL;
	pthread_mutex_lock(&mseg->change);
	if (mseg->watch)
		all = mseg->watch->all;
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return all;
}

int programs_stored_last(struct programs *p, struct seg *seg, const struct data_range *ranges,
			 uint32_t count, struct page_set *stored)
{
	bool dropped = false;
	const struct watched_data data = {ranges, count, stored, &dropped};
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	struct mapping_ref *refs = NULL;
	size_t n_refs = 0;
	int rc = 0;

	if (page_set_fit(stored, end_of(ranges, count)))
		rc = -ENOMEM;
	if (!mseg)
		return rc;
	pthread_mutex_lock(&mseg->change);
	if (!rc)
		rc = mseg_refs(mseg, &refs, &n_refs);
	if (!rc)
		look_for_last(p, mseg, refs, n_refs, &data);
	pthread_mutex_unlock(&mseg->change);
	mapping_refs_free(refs, n_refs);
	mseg_put(p, mseg);
	return rc;
}

uint32_t programs_split(struct programs *p, struct seg *seg, const struct page_set *before,
			const struct page_set *stored)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	uint32_t split = 0;

	if (!mseg)
		return 0;
	pthread_mutex_lock(&mseg->change);
	if (mseg->watch && mseg->state == MSEG_OPEN)
		split = split_huge(mseg->watch->refs, mseg->watch->count, before, stored,
				   &mseg->watch->split);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return split;
}

int programs_huge(struct programs *p, struct seg *seg, const struct page_set *stored,
		  struct page_set *huge)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	int rc = 0;

	if (!mseg)
		return 0;
	pthread_mutex_lock(&mseg->change);
	if (mseg->watch)
		rc = split_list(mseg->watch->refs, mseg->watch->count, stored, huge);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return rc;
}

void programs_map_huge(struct programs *p, struct seg *seg, uint64_t offset)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	struct mapping_ref *refs = NULL;
	size_t count = 0;

	if (!mseg)
		return;
	pthread_mutex_lock(&mseg->change);
	if (!mseg->watch && mseg->state == MSEG_OPEN && !mseg_armed(mseg) &&
	    !mseg_refs(mseg, &refs, &count))
		split_undo_at(refs, count, offset / RAMP_PAGE_BYTES);
	pthread_mutex_unlock(&mseg->change);
	mapping_refs_free(refs, count);
	mseg_put(p, mseg);
}

void programs_unwatch(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	struct watch *w;

	if (!mseg)
		return;
	pthread_mutex_lock(&mseg->change);
	w = mseg->watch;
	if (w && mseg->state == MSEG_OPEN && !mseg_armed(mseg)) {
		for (size_t i = 0; i < w->count; i++)
			if (may_store(&w->refs[i]))
				uffd_disarm(w->refs[i].client, w->refs[i].start, w->refs[i].end);
		split_undo(w->refs, w->count, &w->split);
	}
	watch_free(mseg);
	pthread_mutex_unlock(&mseg->change);
	if (w)
		mseg_put(p, mseg);
	mseg_put(p, mseg);
}

bool programs_use(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	bool used = false;

	if (!mseg)
		return false;
	if (!mseg_refs(mseg, &refs, &count))
		for (size_t i = 0; i < count; i++)
			used |= !refs[i].gone;
	mapping_refs_free(refs, count);
	mseg_put(p, mseg);
	return used;
}
