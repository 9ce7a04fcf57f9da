/*
 * Waiting for another node's tables. See meta_show.h.
 *
 * The happy path: this node sends the index of the last entry that its own tables hold. The other
 * one answers at the end of the turn in which its tables hold that entry, mostly at once.
 *
 * How it fails: the wait ends with -ETIMEDOUT where no answer comes in its time, since a message
 * was lost, or that node is down, far behind, or asked by too many (SHOWS_MAX). Nothing is sent
 * again: the caller's time is short, and its change is committed whatever the answer.
 */
#include "meta_show.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "journal.h"
#include "meta_core.h"

void shows_init(struct shows *all)
{
	memset(all, 0, sizeof(*all));
	/* Begins at random: a late answer to an earlier life matches no wait. */
	all->next_ctx = ramp_random64() >> 1;
}

static uint64_t index_in_the_tables(struct meta *meta)
{
	struct journal_state s;

	journal_state(meta_journal(meta), &s);
	return s.applied;
}

/* Takes *at out of its list and ends it. */
static void show_end(struct show_wait **at, int result)
{
	struct meta_reply reply = {.result = result};
	struct show_wait *wait = *at;

	*at = wait->next;
	wait->done(wait->arg, &reply);
	free(wait);
}

void shows_add(struct meta *meta, struct show_wait *wait)
{
	struct shows *all = meta_shows(meta);

	wait->ctx = all->next_ctx++;
	wait->deadline_ms = meta_now_ms(meta) + wait->timeout_ms;
	wait->next = all->waiting;
	all->waiting = wait;
	meta_send_small(meta, wait->node, WIRE_SHOW, wait->ctx, index_in_the_tables(meta));
}

void shows_wanted(struct meta *meta, ramp_node_t from, uint64_t ctx, uint64_t index)
{
	struct shows *all = meta_shows(meta);
	size_t i;

	if (index_in_the_tables(meta) >= index) {
		meta_send_small(meta, from, WIRE_SHOWN, ctx, 0);
		return;
	}
	for (i = 0; i < SHOWS_MAX && all->wanted[i].index != 0; i++)
		;
	if (i == SHOWS_MAX)
		return; /* the asking node's time ends */
	all->wanted[i].index = index;
	all->wanted[i].ctx = ctx;
	all->wanted[i].from = from;
}

void shows_answer(struct meta *meta, ramp_node_t from, uint64_t ctx)
{
	struct show_wait **at = &meta_shows(meta)->waiting;

	while (*at && ((*at)->ctx != ctx || (*at)->node != from))
		at = &(*at)->next;
	if (*at)
		show_end(at, 0);
}

static void answer_others(struct meta *meta)
{
	struct shows *all = meta_shows(meta);
	uint64_t index = index_in_the_tables(meta);
	size_t i;

	for (i = 0; i < SHOWS_MAX; i++) {
		if (all->wanted[i].index == 0 || all->wanted[i].index > index)
			continue;
		all->wanted[i].index = 0;
		meta_send_small(meta, all->wanted[i].from, WIRE_SHOWN, all->wanted[i].ctx, 0);
	}
}

void shows_tend(struct meta *meta)
{
	struct show_wait **at = &meta_shows(meta)->waiting;

	answer_others(meta);
	while (*at) {
		if (meta_now_ms(meta) >= (*at)->deadline_ms)
			show_end(at, -ETIMEDOUT);
		else
			at = &(*at)->next;
	}
}

void shows_fail_all(struct meta *meta, int result)
{
	while (meta_shows(meta)->waiting)
		show_end(&meta_shows(meta)->waiting, result);
}
