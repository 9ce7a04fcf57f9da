/*
 * What the source of a pre-copy knows of stores, and tells the target.
 *
 * Stores are watched from before the first round until the freeze: those of programs by their page
 * tables (programs_watch), those of the daemon by itself (memory/stores.h). STOREDs name the pages to the
 * target, before the ROUND or the TRANSFER that counts them.
 *
 * How it fails: what is not known counts as stored into. Without memory the rounds end.
 */
#include "rounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "memory/populated.h"
#include "memory/stores.h"

#include "move_message.h"

#define PARTS_MAX 8192u /* of 16 MiB each */

/* ---- what was stored into ------------------------------------------------------------------- */

/* Adds the pages of list a that list b does not have. -ENOMEM. */
static int add_beyond(struct page_set *set, const struct data_range *a, uint32_t n_a,
		      const struct data_range *b, uint32_t n_b)
{
	/* The file may have been cut since. */
	if (n_a && page_set_fit(set, page_count(a[n_a - 1].offset + a[n_a - 1].len)))
		return -ENOMEM;
	for (uint32_t i = 0, k = 0; i < n_a; i++) {
		uint64_t at = a[i].offset, end = at + a[i].len, from;

		for (; at < end; at = from < end ? b[k].offset + b[k].len : end) {
			while (k < n_b && b[k].offset + b[k].len <= at)
				k++;
			from = k < n_b ? b[k].offset : end;
			if (at < from)
				page_set_add(set, at / RAMP_PAGE_BYTES,
					     page_count(from < end ? from : end) -
						     at / RAMP_PAGE_BYTES);
		}
	}
	return 0;
}

/* Adds pages whose data the target may have and that are holes by now: the kernel does not report a
   truncate by another process (layout.c), and no page table shows it. And data that is not in the list
   that the target has read by: it may have come after that was made, and before stores were watched. */
static int add_changed(struct move *m, struct source_rounds *r)
{
	if (add_beyond(&r->stored, m->ranges, m->n_ranges, r->ranges, r->n_ranges) ||
	    add_beyond(&r->stored, r->ranges, r->n_ranges, m->ranges, m->n_ranges))
		return ramp_err_sys(&m->work_err, ENOMEM, "pages of a round");
	return 0;
}

/* Lists where there is data now, unless the list that the target knows still says so. */
static int list_data(struct move *m, struct source_rounds *r)
{
	uint64_t grown, populated;
	int rc;

	free(r->ranges);
	r->ranges = NULL;
	r->layout = seg_layout_now(m->seg);
	if (!seg_layout_changed(m->seg, &grown))
		return 0;
	r->ranges = calloc(PROTO_RANGES_MAX, sizeof(*r->ranges));
	if (!r->ranges)
		return ramp_err_sys(&m->work_err, ENOMEM, "list of populated pages");
	rc = populated_list(m->seg, r->ranges, PROTO_RANGES_MAX, &r->n_ranges, &populated,
			    &m->work_err);
	return rc ? rc : add_changed(m, r);
}

static const struct data_range *data_of(const struct move *m, uint32_t *count)
{
	const struct source_rounds *r = m->source.rounds;

	*count = r->ranges ? r->n_ranges : m->n_ranges;
	return r->ranges ? r->ranges : m->ranges;
}

/* Adds what the daemon has stored into for others. Where that is not known, or another process has cut the
   file, every page counts: holes as well, where the target may have bytes of before. */
static int add_own_stores(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	uint64_t size = seg_size(m->seg), pages = page_count(size > m->size ? size : m->size);

	r->all = programs_stored_all(m->t->programs, m->seg);
	if (!stores_take(m->seg, &r->stored))
		return 0;
	r->all = "holes have come into it that no program asked for here, or memory is short";
	if (page_set_fit(&r->stored, pages))
		return ramp_err_sys(&m->work_err, ENOMEM, "pages of a round");
	page_set_add(&r->stored, 0, pages);
	return 0;
}

uint64_t rounds_left(struct move *m)
{
	const struct page_set *set = &m->source.rounds->stored;
	uint64_t end = page_count(seg_size(m->seg)), at = 0, first, run, pages = 0;

	while ((run = page_set_next(set, at, &first)) && first < end) {
		pages += first + run < end ? run : end - first;
		at = first + run;
	}
	return pages;
}

void rounds_next(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	struct page_set told = r->told;

	r->told = r->stored;
	r->stored = told;
	r->round++;
	seg_layout_note(m->seg, r->layout);
	if (!r->ranges)
		return;
	free(m->ranges);
	m->ranges = r->ranges;
	m->n_ranges = r->n_ranges;
	r->ranges = NULL;
}

/* ---- messages ------------------------------------------------------------------------------- */

#define PART_WORDS (PROTO_STORED_PAGES / PAGE_SET_WORD)

/* Returns whether there is something in that part of the set, and how many words it has. */
static bool part_of(const struct page_set *set, size_t at, size_t *words)
{
	bool any = false;

	*words = set->count - at < PART_WORDS ? set->count - at : PART_WORDS;
	for (size_t i = 0; i < *words; i++)
		any |= set->words[at + i] != 0;
	return any;
}

/* Sends the set as STOREDs of that round. Returns how many. */
static uint32_t send_stored(struct move *m, const struct page_set *set, uint32_t round)
{
	struct msg_stored s = {.id = m->id, .k = m->k, .round = round};
	size_t words;

	for (size_t at = 0; at < set->count; at += PART_WORDS) {
		if (!part_of(set, at, &words))
			continue;
		memset(s.bits, 0, sizeof(s.bits));
		memcpy(s.bits, set->words + at, words * sizeof(s.bits[0]));
		s.first_page = (uint64_t)at * PAGE_SET_WORD;
		MOVE_SEND(m->t, m->peer, PROTO_STORED, proto_put_stored, &s);
		s.part++;
	}
	return s.part;
}

/* Whether all STOREDs of the set fit into the peer's queue, with room for others: the target takes k
   with all of them only, while programs wait. */
static bool can_be_sent(const struct page_set *set)
{
	uint32_t parts = 0;
	size_t words;

	for (size_t at = 0; at < set->count && parts <= PARTS_MAX; at += PART_WORDS)
		parts += part_of(set, at, &words);
	return parts <= PARTS_MAX;
}

void rounds_send(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	struct msg_round msg = {
		.id = m->id, .k = m->k, .round = r->round, .size = seg_size(m->seg)};

	/* The target begins a round with all parts alone; a later ROUND says that the source is there. */
	if (r->round && !r->done)
		r->parts = send_stored(m, &r->told, r->round);
	msg.parts = r->round ? r->parts : 0;
	MOVE_SEND(m->t, m->peer, PROTO_ROUND, proto_put_round, &msg);
}

void rounds_say_prefill(struct move *m)
{
	struct msg_prefill msg = {.id = m->id,
				  .k = m->k,
				  .prefill = m->prefill,
				  .progress = m->wants_progress,
				  .limit_bytes_s = m->limit_bytes_s,
				  .batch = m->batch};

	memcpy(msg.name, m->name, sizeof(msg.name));
	MOVE_SEND(m->t, m->peer, PROTO_PREFILL, proto_put_prefill, &msg);
}

void rounds_send_last(struct move *m, struct msg_transfer *tr)
{
	struct source_rounds *r = m->source.rounds;

	if (!r || !r->last)
		return;
	tr->round = r->round + 1;
	tr->parts = send_stored(m, &r->stored, tr->round);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

void rounds_open(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	if (!r || !r->closed)
		return;
	r->closed = false;
	programs_restore(m->t->programs, m->seg);
	seg_open_to_stores(m->seg);
}

void rounds_given(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	if (!r || !r->closed)
		return;
	r->closed = false;
	seg_open_to_stores(m->seg); /* it is another node's */
}

void rounds_end(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	if (!r || !r->watching)
		return;
	r->watching = false;
	programs_unwatch(m->t->programs, m->seg);
	stores_unwatch(m->seg);
}

void rounds_free(struct move *m)
{
	struct source_rounds *r = m->source.rounds;

	m->source.rounds = NULL;
	if (!r)
		return;
	page_set_free(&r->told);
	page_set_free(&r->stored);
	page_set_free(&r->sample);
	free(r->ranges);
	free(r);
}

/* ---- looks ---------------------------------------------------------------------------------- */

int rounds_watch(struct move *m)
{
	const struct data_range *ranges;
	uint32_t count;

	m->source.rounds->watching = true;
	stores_watch(m->seg);
	ranges = data_of(m, &count);
	return programs_watch(m->t->programs, m->seg, ranges, count, &m->work_err);
}

int rounds_look(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	const struct data_range *ranges;
	uint32_t count;
	int rc;

	page_set_clear(&r->stored);
	rc = list_data(m, r);
	if (rc)
		return rc;
	ranges = data_of(m, &count);
	rc = programs_stored(m->t->programs, m->seg, ranges, count, &r->stored, &m->work_err);
	/* After the page tables: a store that is under way is noted when it is done. */
	if (!rc)
		rc = add_own_stores(m);
	r->split =
		rc ? 0
		   : programs_split(m->t->programs, m->seg, r->thin ? NULL : &r->told, &r->stored);
	return rc;
}

int rounds_last(struct move *m)
{
	struct source_rounds *r = m->source.rounds;
	const struct data_range *ranges;
	uint32_t count;
	int rc = list_data(m, r);

	if (rc)
		return rc;
	ranges = data_of(m, &count);
	/* Pages that the last look has found were not told yet, and are in the set. */
	if (programs_stored_last(m->t->programs, m->seg, ranges, count, &r->stored))
		return ramp_err_sys(&m->work_err, ENOMEM, "pages of a round");
	rc = add_own_stores(m);
	if (!rc && !can_be_sent(&r->stored))
		rc = ramp_err_set(&m->work_err, EBUSY,
				  "too many parts of it were stored into since they were read");
	r->last = !rc;
	return rc;
}
