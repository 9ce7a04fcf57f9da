/*
 * A look at all mappings of a process takes a millisecond where it has thousands, and a batch of moves
 * needs one for each segment. So a look notes every file of the store, and callers share it (shared.h).
 *
 * How it fails: a process that can't be looked into may map any segment: all callers of that look are
 * told so.
 */
#include "outside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "programs/attach/mapped_segment.h"
#include "programs/client/clients.h"
#include "programs/proc/found.h"
#include "programs/proc/process.h"
#include "programs/proc/shared.h"
#include "programs/programs.h"

struct outside_run {
	struct shared_run run;
	struct programs *programs;
	/* Once it is done; the list is joined. */
	struct found_list found;
	int rc;
	pid_t pid; /* that can't be looked into; 0: it is another error */
};

static int note_files(struct bounded *bounded, void *arg, struct client *client)
{
	(void)bounded;
	return mappings_files(&client->mappings, arg);
}

static void drop_found(void *arg)
{
	found_free(arg);
}

static void outside_run(struct shared_run *made)
{
	struct outside_run *run = (struct outside_run *)made;
	struct client **clients;
	size_t n;

	run->rc = clients_get_ready(run->programs, &clients, &n);
	if (!run->rc)
		run->rc = clients_look_into(clients, n, note_files, drop_found, &run->found,
					    sizeof(run->found), &run->pid);
	if (!run->rc)
		found_join(&run->found);
}

static void outside_free(struct shared_run *made)
{
	struct outside_run *run = (struct outside_run *)made;

	found_free(&run->found);
	free(run);
}

static struct shared outside_runs = {.run = outside_run, .free = outside_free, SHARED_LOCKS};

static int outside_failed(const struct outside_run *run, struct ramp_err *err)
{
	char name[64];

	if (!run->pid)
		return ramp_err_sys(err, -run->rc, "looking into sessions");
	process_name(run->pid, name);
	return ramp_err_set(err, EBUSY, "looking into process %s: %s", name, strerror(-run->rc));
}

int outside_find(const struct outside_run *run, const struct mapped_segment *mseg, uint64_t ino,
		 struct ramp_err *err)
{
	const struct found_list *found = &run->found;
	char name[64];

	if (run->rc)
		return outside_failed(run, err);
	for (size_t i = found_first(found, ino); i < found->n && found->at[i].ino == ino; i++) {
		if (found->at[i].start >= mseg->lo && found->at[i].end <= mseg->hi)
			continue;
		process_name(found->at[i].pid, name);
		return ramp_err_set(err, EBUSY, "process %s maps it outside of its extent", name);
	}
	return 0;
}

struct outside_run *outside_look(struct programs *p)
{
	struct outside_run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	run->programs = p;
	return (struct outside_run *)shared_join(&outside_runs, &run->run, (uintptr_t)p,
						 SHARED_NEW);
}

void outside_put(struct outside_run *run)
{
	if (run)
		shared_put(&outside_runs, &run->run);
}
