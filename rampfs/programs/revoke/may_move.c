/*
 * Says at CONNECT whether a segment may be moved: asks all processes, and the mount.
 *
 * Happy path (programs_may_move): each process that maps the segment's file has a session that
 * answers for it, can be looked into, and has no private copies of its pages.
 *
 * How it fails: -EBUSY, with the process and the reason. Nothing has to be undone.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "inject.h"
#include "may_move.h"
#include "memory/pages.h"
#include "prelook.h"
#include "programs/attach/agent_call.h"
#include "programs/attach/attachments.h"
#include "programs/client/clients.h"
#include "programs/proc/bounded.h"
#include "programs/proc/process.h"
#include "programs/proc/search.h"
#include "programs/programs.h"

#define ASK_MS	  1000u
#define LOOKED_US 100000u /* how old a look may be that moves of many at once share */

struct asking {
	struct programs *programs;
	struct mapped_segment *mseg;
	dev_t dev;
	uint64_t ino;
	struct ramp_err *err;
};

static int look_same(struct bounded *bounded, void *arg, struct client *client)
{
	return bounded_same_memory(bounded, *(const pid_t *)arg, client->pid);
}

/* Returns the client of that process that has the segment mapped, with a reference, even where its
   session has hung up and the process is not gone yet; NULL: none. */
static struct client *holder_of(struct mapped_segment *mseg, pid_t pid)
{
	struct client *client = NULL;
	struct client_mappings *cm;

	pthread_rwlock_rdlock(&mseg->lock);
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		if (cm->client->pid == pid) {
			client = client_get(cm->client);
			break;
		}
	pthread_rwlock_unlock(&mseg->lock);
	return client;
}

/* Returns the client that answers for that process: its own, or that of a parent whose memory it
   shares (vfork). */
static struct client *client_for(struct programs *p, struct mapped_segment *mseg, pid_t pid)
{
	struct client *client = client_find(p, pid, 0), **list;
	size_t count;
	pid_t parent;

	if (!client)
		client = holder_of(mseg, pid);
	if (client)
		return client;
	list = mseg_clients(mseg, &count);
	if (!list || clients_look(list, count, look_same, &pid, sizeof(pid), &parent) != 1)
		return NULL;
	return holder_of(mseg, parent);
}

static int asked_busy(struct asking *asking, pid_t pid, const char *what)
{
	char name[64];

	process_name(pid, name);
	return ramp_err_set(asking->err, EBUSY, "process %s %s", name, what);
}

static int ask_agent(struct asking *asking, struct client *client, pid_t pid)
{
	struct session_msg drop = {.type = SESSION_DROP, .segment = asking->mseg->id};
	struct programs *p = asking->programs;
	bool stopped = client_stopped(client);
	char why[INJECT_WHY], name[64];
	int rc;

	rc = stopped ? -ETIMEDOUT : agent_call(client, &drop, -1, clock_ms() + ASK_MS, NULL);
	if (rc == -ESRCH && client_has_ended(client, UINT64_MAX))
		return 0;
	if (rc == -EPERM)
		return asked_busy(asking, pid, "maps it and has sealed it (mseal)");
	if (rc && inject_ready(client, why)) {
		process_name(pid, name);
		return ramp_err_set(asking->err, EBUSY, "process %s maps it and %s", name, why);
	}
	if (rc && !stopped && !client_stopped(client))
		return asked_busy(asking, pid, "maps it and its agent does not answer");
	rc = mseg_look(p, asking->mseg, client);
	if (rc == -E2BIG)
		return asked_busy(asking, pid, "maps it in too many pieces");
	if (!rc)
		return 0;
	process_name(pid, name);
	return ramp_err_set(asking->err, EBUSY, "looking into process %s: %s", name, strerror(-rc));
}

/* Returns true where a private mapping was written to: DROP would throw the program's own pages
   away. change is held. */
static bool has_copies(struct mapped_segment *mseg, struct client *client)
{
	const struct client_mappings *cm = mseg_mappings_of(mseg, client);
	bool swapped = !mseg->seg || !pages_lost(mseg->seg);

	for (size_t i = 0; cm && i < cm->count; i++)
		if (!cm->at[i].gone &&
		    mappings_copied(&client->mappings, cm->at[i].start, cm->at[i].end, swapped) > 0)
			return true;
	return false;
}

static int on_found(void *arg, pid_t pid, uint64_t start, uint64_t end)
{
	struct asking *asking = arg;
	struct client *client;
	int rc;

	if (start < asking->mseg->lo || end > asking->mseg->hi)
		return asked_busy(asking, pid, "maps it outside of its extent");
	client = client_for(asking->programs, asking->mseg, pid);
	/* A child that shared its parent's memory when it was seen may have its own by now, or have
	   ended. */
	if (!client && search_one(asking->dev, asking->ino, pid) == 0)
		return 0;
	if (!client)
		return asked_busy(asking, pid, "maps it and has no session");
	pthread_mutex_lock(&asking->mseg->change);
	rc = ask_agent(asking, client, pid);
	if (!rc && has_copies(asking->mseg, client))
		rc = asked_busy(asking, pid, "has private copies of its pages");
	pthread_mutex_unlock(&asking->mseg->change);
	client_put(client);
	return rc;
}

void programs_set_passthrough(struct programs *p, programs_passthrough *fn, void *arg)
{
	p->passthrough = fn;
	p->passthrough_arg = arg;
}

int may_move_ask_passthrough(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	return p->passthrough ? p->passthrough(p->passthrough_arg, seg, err) : 0;
}

static int say_stuck(pid_t pid, struct ramp_err *err)
{
	char name[64];

	process_name(pid, name);
	return ramp_err_set(err, EBUSY,
			    "process %s can't be looked into, and may map it: a filesystem that it "
			    "uses does not answer",
			    name);
}

/* Asks all processes. Takes change only for a conversation with an agent: the search may take
   seconds, and a program that attaches meanwhile is met by the revoke. */
static int ask_search(struct asking *asking, struct seg *seg, uint64_t since_us)
{
	struct stat st;
	pid_t stuck = 0;
	int rc;

	if (fstat(seg_fd(seg), &st))
		return ramp_err_sys(asking->err, errno, "the segment's file");
	asking->dev = st.st_dev;
	asking->ino = st.st_ino;
	rc = search_all(st.st_dev, st.st_ino, since_us, on_found, asking, &stuck);
	if (rc && since_us != SEARCH_NEW) { /* by now, that may have gone */
		*asking->err = (struct ramp_err){0};
		return ask_search(asking, seg, SEARCH_NEW);
	}
	if (stuck)
		return say_stuck(stuck, asking->err);
	if (rc && !asking->err->code)
		ramp_err_sys(asking->err, -rc, "asking /proc which processes map it");
	return rc;
}

/* A child that is forked without a session after the look is found by none, and a look that is a little
   older than the move misses no more than that. */
static uint64_t look_since(uint64_t came_us)
{
	uint64_t now = clock_us();

	if (!came_us)
		return SEARCH_NEW;
	return came_us + LOOKED_US < now ? now - LOOKED_US : came_us;
}

int programs_may_move(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	return programs_may_move_since(p, seg, 0, err);
}

int programs_may_move_since(struct programs *p, struct seg *seg, uint64_t came_us,
			    struct ramp_err *err)
{
	struct mapped_segment *mseg = mseg_get(p, seg_id(seg));
	struct asking asking = {.programs = p, .mseg = mseg, .err = err};
	struct ramp_err own = {0};
	int rc;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	if (!err)
		asking.err = &own;
	rc = prelook_reach(mseg, asking.err);
	if (!rc)
		rc = ask_search(&asking, seg, look_since(came_us));
	if (!rc)
		rc = may_move_ask_passthrough(p, seg, err);
	mseg_put(p, mseg);
	return rc;
}

int programs_maps_file(dev_t dev, uint64_t ino, pid_t *pid)
{
	return search_any(dev, ino, pid);
}

void programs_keeper(struct seg *seg, char who[PROGRAMS_KEEPER])
{
	char name[64], state;
	struct stat st;
	pid_t pid = 0;

	who[0] = 0;
	if (fstat(seg_fd(seg), &st) || !search_any(st.st_dev, st.st_ino, &pid) || !pid)
		return;
	process_name(pid, name);
	state = process_state(pid);
	snprintf(who, PROGRAMS_KEEPER, "process %s%s", name,
		 process_frozen(pid)		? ", which is in a frozen cgroup,"
		 : process_tracer(pid, pid)	? ", which is traced by another,"
		 : state == 'T' || state == 't' ? ", which is stopped,"
						: "");
}

bool programs_mapped(struct programs *p, struct seg *seg)
{
	struct stat st;
	pid_t pid;

	(void)p;
	/* Where /proc does not answer, a process may map it. */
	return !fstat(seg_fd(seg), &st) && search_any(st.st_dev, st.st_ino, &pid);
}
