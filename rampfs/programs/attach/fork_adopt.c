/*
 * FORK and ADOPT: how a child gets the mappings of its parent.
 *
 * Happy path: before the fork, FORK looks which ranges the parent has mapped and gives a token for
 * them; in the child, when its own agent is ready, ADOPT maps all of them as an ATTACH does
 * (attach.c).
 *
 * How it fails: if ranges can't be mapped, the answer names the first. A range of which it is not
 * known whether it is mapped takes precedence over all others, since the child has to unmap
 * everything then. For a token that the daemon before has made, the child gets what the parent has
 * mapped now.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach.h"
#include "attachments.h"
#include "base/clock.h"
#include "base/session.h"
#include "fork_adopt.h"
#include "give_back.h"
#include "programs/client/clients.h"
#include "programs/client/request.h"
#include "programs/client/tokens.h"
#include "programs/programs.h"
#include "replace.h"

#define QUIET_MS 1000u /* how long a conversation may take to end before a fork */

static bool is_more_of(const struct adopt_range *last, const struct proc_mapping *m)
{
	return last->id == m->id && last->end == m->start && last->gone == m->gone &&
	       last->writable == m->writable &&
	       (m->gone || last->offset + (last->end - last->start) == m->offset);
}

struct collecting {
	struct programs *programs;
	struct token *token;
};

/* Returns where in its segment the empty file's mapping begins: by the row, since nothing of the
   segment's addresses is given back while they are mapped. UINT64_MAX: there is no such row. */
static uint64_t offset_gone(struct programs *p, const struct proc_mapping *m)
{
	struct segment_row row;

	if (meta_segment(p->meta, m->id, &row) || m->start < row.extent_addr)
		return UINT64_MAX;
	return m->start - row.extent_addr;
}

/* Notes a mapping. Neighbours with different protections are one range: the child knows its
   protections (fork.c). */
static int collect_range(void *arg, const struct proc_mapping *m)
{
	const struct collecting *c = arg;
	struct token *token = c->token;
	struct adopt_range *more;

	if (token->count && is_more_of(&token->ranges[token->count - 1], m)) {
		token->ranges[token->count - 1].end = m->end;
		token->ranges[token->count - 1].prot |= m->prot;
		return 0;
	}
	if (token->count >= RANGES_MAX)
		return -E2BIG;
	if ((token->count & (token->count - 1)) == 0) {
		more = reallocarray(token->ranges, token->count ? 2 * token->count : 1,
				    sizeof(*more));
		if (!more)
			return -ENOMEM;
		token->ranges = more;
	}
	token->ranges[token->count++] = (struct adopt_range){
		.id = m->id,
		.start = m->start,
		.end = m->end,
		.offset = m->gone ? offset_gone(c->programs, m) : m->offset,
		.prot = m->prot,
		.writable = m->writable,
		.gone = m->gone,
	};
	return 0;
}

/*
 * Notes all that the client has mapped. While its agent replaces one mapping by another, /proc may
 * show neither for a short time; so this looks while no thread is in a conversation with the agent.
 * It does not wait long for an agent that is silent.
 */
static int collect_all(struct client *client, struct token *token)
{
	struct programs *p = client->programs;
	struct collecting collecting = {p, token};
	uint64_t until_ms = clock_ms() + QUIET_MS;
	bool quiet;
	int rc;

	/* Not pthread_mutex_clocklock: ThreadSanitizer does not know it (GCC 12). */
	while (!(quiet = !pthread_mutex_trylock(&client->io)) && clock_ms() < until_ms)
		usleep(200);
	rc = mappings_each(&client->mappings, p->arena_lo, p->arena_hi, collect_range, &collecting);
	if (quiet)
		pthread_mutex_unlock(&client->io);
	return rc;
}

/* Makes a token, not in the table yet, for all that `pid` has attached. NULL: err says why. */
static struct token *make_token_of(struct client_request *r, pid_t pid, struct ramp_err *err)
{
	struct client *client = request_find(r, pid, clock_ms() + r->programs->connect_ms);
	struct token *token;
	int rc;

	if (!client) {
		ramp_err_set(err, ESRCH, "process %d has no session", (int)pid);
		return NULL;
	}
	token = calloc(1, sizeof(*token));
	rc = token ? collect_all(client, token) : -ENOMEM;
	client_put(client);
	if (!rc)
		return token;
	token_free(token);
	ramp_err_sys(err, -rc, "looking what process %d maps", (int)pid);
	return NULL;
}

static int make_fork_token(struct client_request *r, struct session_msg *result,
			   struct ramp_err *err)
{
	struct programs *p = r->programs;
	struct token *token = make_token_of(r, r->pid, err);
	int rc;

	if (!token)
		return -err->code;
	rc = process_find(r->pid, &token->process);
	if (!rc && !process_lives(r->pidfd))
		rc = -ESRCH;
	if (rc) {
		token_free(token);
		return ramp_err_sys(err, -rc, "looking at process %d", (int)r->pid);
	}
	result->segment = token->count;
	if (!token->count) {
		token_free(token);
		return 0;
	}
	return token_add(p, token, result->token, err);
}

void fork_begin(struct client_request *r)
{
	struct session_msg result = {.type = SESSION_RESULT};
	struct ramp_err err = {0};
	int rc = make_fork_token(r, &result, &err);

	result.result = (uint32_t)-rc;
	memcpy(result.text, err.text, sizeof(err.text));
	request_answer(r, &result);
	request_free(r);
}

/* Gives the child the empty file, too, for a range of a segment that is on another node. */
static int adopt_gone(struct programs *p, struct mapped_segment *mseg, struct client *client,
		      const struct adopt_range *range)
{
	struct mapping_ref ref = {.client = client,
				  .start = range->start,
				  .end = range->end,
				  .prot = range->prot,
				  .writable = range->writable};
	int rc;

	pthread_mutex_lock(&mseg->change);
	/* Under the lock: the look for mappings that stand in the way comes before, or after. */
	rc = give_back_allows(p, range->id, range->start, range->end) ? 0 : -EADDRNOTAVAIL;
	rc = rc ? rc : replace_gone(p, mseg, &ref, false, clock_ms() + p->connect_ms);
	if (!rc)
		rc = mseg_look(p, mseg, client);
	pthread_mutex_unlock(&mseg->change);
	return rc;
}

/* Maps a range. Parts that the child has mapped otherwise since its parent was looked at stay as
   they are: the rest is mapped. */
static int map_around(struct programs *p, struct mapped_segment *mseg, struct client *client,
		      struct seg *seg, struct attach_range *wish)
{
	uint64_t at = wish->addr, end = wish->addr + wish->len;
	int rc = attach_map(p, mseg, client, seg, wish);
	struct attach_range part = *wish;
	struct address_range gap;

	if (rc != -EEXIST)
		return rc;
	while ((rc = mappings_gap(&client->mappings, at, end, &gap)) > 0) {
		part.addr = gap.start;
		part.len = gap.end - gap.start;
		part.offset = wish->offset + (gap.start - wish->addr);
		rc = attach_map(p, mseg, client, seg, &part);
		if (rc)
			return rc;
		at = gap.end;
	}
	return rc;
}

/* Gives the child a range of a segment that is here (`seg` NULL: it was), where it still has the
   addresses that it had at the fork. */
static int adopt_live(struct programs *p, struct mapped_segment *mseg, struct client *client,
		      struct seg *seg, struct attach_range *wish, struct ramp_err *err)
{
	uint64_t addr = wish->addr;
	struct segment_row row;
	int rc;

	/* Without a row nothing is given back: it was unlinked. */
	rc = !seg || meta_segment(p->meta, wish->id, &row) == -ENOENT
		     ? attach_enter(p, mseg, err)
		     : attach_enter_extent(p, mseg, seg, wish, &row, err);
	if (rc)
		return rc;
	if (!seg)
		rc = -ENOENT;
	else
		rc = wish->addr == addr ? map_around(p, mseg, client, seg, wish) : -EADDRNOTAVAIL;
	wish->addr = addr;
	attach_leave(p, mseg);
	return rc;
}

static int adopt_one(struct client_request *r, struct client *client,
		     const struct adopt_range *range, struct ramp_err *err)
{
	struct programs *p = r->programs;
	struct attach_range wish = {.id = range->id,
				    .addr = range->start,
				    .len = range->end - range->start,
				    .offset = range->offset,
				    .prot = range->prot,
				    .writable = range->writable,
				    .asker = r};
	struct mapped_segment *mseg = mseg_get(p, range->id);
	struct segment_row row;
	struct seg *seg;
	int rc;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments");
	if (!meta_segment(p->meta, range->id, &row) && row.pages == SEGMENT_PAGES_SMALL)
		wish.flags |= SESSION_NOHUGE;
	if (range->prot & PROT_WRITE && !range->writable) {
		/* A private mapping would take the child's stores and show them to no other
		   process. */
		mseg_put(p, mseg);
		return ramp_err_set(err, EACCES, "a range is writable that was opened read-only");
	}
	seg = store_find(p->store, range->id);
	rc = adopt_live(p, mseg, client, seg, &wish, err);
	if (seg)
		seg_put(seg);
	if (rc == -EREMOTE)
		rc = adopt_gone(p, mseg, client, range);
	mseg_put(p, mseg);
	return rc ? attach_failed(rc, &wish, err) : 0;
}

/*
 * Makes a token of what the parent has now, for a fork whose token went with the daemon before. The
 * parent must be a process that this user may look into anyway, which the owner of its directory in
 * /proc says.
 */
static struct token *make_token_of_parent(struct client_request *r, struct ramp_err *err)
{
	pid_t parent = process_parent(r->pid);
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)parent);
	if (parent <= 0 || stat(path, &st) || st.st_uid != r->uid) {
		ramp_err_set(err, EPERM, "its parent is gone, or another user's");
		return NULL;
	}
	return make_token_of(r, parent, err);
}

static struct token *adopt_token(struct client_request *r, struct ramp_err *err)
{
	struct token *token;

	if (!r->msg.token[0] && !r->msg.token[1])
		return make_token_of_parent(r, err);
	token = token_take(r->programs, r->msg.token);
	if (!token || token->id)
		token_refused(err);
	else if (!token_check(token, r, err))
		return token;
	token_free(token);
	return NULL;
}

/* Keeps the error for the answer: the first one. But the first one after which it is not known which
   ranges the child has mapped takes its place: then the child must unmap all of them (fork.c). */
static void note_failed(struct ramp_err *first, const struct ramp_err *err)
{
	bool unknown = err->code == ETIMEDOUT || err->code == ESRCH;

	if (!first->code || (unknown && first->code == EIO))
		ramp_err_set(first, unknown ? err->code : EIO, "%s", err->text);
}

void adopt_begin(struct client_request *r)
{
	struct session_msg result = {.type = SESSION_RESULT};
	struct programs *p = r->programs;
	struct ramp_err err = {0}, first = {0};
	struct token *token = adopt_token(r, &first);
	struct client *client = NULL;

	if (token)
		client = request_client(r, clock_ms() + p->connect_ms);
	if (!client && !first.code)
		ramp_err_set(&first, ESRCH, "the process has no session");
	for (uint32_t i = 0; client && i < token->count && !request_is_for_nobody(r); i++)
		if (!adopt_one(r, client, &token->ranges[i], &err))
			result.segment++;
		else
			note_failed(&first, &err);
	result.result = (uint32_t)first.code;
	memcpy(result.text, first.text, sizeof(first.text));
	request_answer(r, &result);
	if (client)
		client_put(client);
	token_free(token);
	request_free(r);
}
