/*
 * The line in which moves of a batch wait for their windows.
 *
 * Happy path: a worker takes several of one owner, looks at the programs once for all of them, and goes through
 * their windows one after the other: each is as short as by itself, since the others are not frozen meanwhile.
 * Moves that come meanwhile wait for the next worker; SOURCE_MANY that wait get one at once.
 *
 * How it fails: each move by itself, with its own verdict. After a window that took long (a program does
 * not answer) the rest is given to other workers, one each. A line of each owner, so that no user's programs
 * keep those of another one.
 */
#include "source_line.h"

#include <stdlib.h>

#include "source_window.h"

#define GROUPS_MAX 4u /* of one owner */

/* The moves of one worker. */
struct line_group {
	LIST_ENTRY(line_group) link; /* of transfers.groups */
	struct transfers *t;
	uid_t owner;
	struct move *at[SOURCE_MANY];
	size_t n, over; /* `over`: are not the worker's any more, and may be freed */
};

static void line_go(struct transfers *t, uid_t owner);

static void group_work(void *arg)
{
	struct line_group *group = arg;

	group->over = source_freeze_many(group->at, group->n);
}

static void group_done(void *arg)
{
	struct line_group *group = arg;
	struct transfers *t = group->t;
	uid_t owner = group->owner;

	t->jobs--;
	LIST_REMOVE(group, link);
	for (size_t i = group->over; i < group->n; i++)
		move_work_alone(group->at[i], source_freeze_opened);
	free(group);
	line_go(t, owner);
}

/* Takes the first ones of that owner out of the line. */
static void line_take(struct line_group *group)
{
	struct transfers *t = group->t;
	struct move *m, *next;

	for (m = STAILQ_FIRST(&t->line); m && group->n < SOURCE_MANY; m = next) {
		next = STAILQ_NEXT(m, in_line);
		if (m->owner != group->owner)
			continue;
		STAILQ_REMOVE(&t->line, m, move, in_line);
		group->at[group->n++] = m;
	}
}

static void line_count(const struct transfers *t, uid_t owner, size_t *waiting, size_t *groups)
{
	const struct line_group *group;
	const struct move *m;

	*waiting = *groups = 0;
	STAILQ_FOREACH (m, &t->line, in_line)
		*waiting += m->owner == owner;
	LIST_FOREACH (group, &t->groups, link)
		*groups += group->owner == owner;
}

/* Gives a worker those that wait, unless there is one that they can wait for. */
static void line_go(struct transfers *t, uid_t owner)
{
	struct line_group *group;
	size_t waiting, groups;

	line_count(t, owner, &waiting, &groups);
	if (!waiting || groups == GROUPS_MAX || (groups && waiting < SOURCE_MANY))
		return;
	group = calloc(1, sizeof(*group));
	if (!group)
		abort(); /* nothing else would ever freeze them */
	group->t = t;
	group->owner = owner;
	line_take(group);
	LIST_INSERT_HEAD(&t->groups, group, link);
	t->jobs++;
	loop_work_of(t->loop, owner, group_work, group_done, group);
}

void source_line_join(struct move *m, move_fn *done)
{
	move_work_begin(m, done);
	STAILQ_INSERT_TAIL(&m->t->line, m, in_line);
	line_go(m->t, m->owner);
}
