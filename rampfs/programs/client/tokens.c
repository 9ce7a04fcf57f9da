/*
 * One-time tokens: which process may attach which segment.
 *
 * A token is 128 random bits that this daemon remembers for 30 s (token_ms), for one use: of one
 * open by one process (the FUSE ioctl), or of all that a process has attached, for a child that it
 * is about to fork. It is bound to the process, by its pid and the time at which it began.
 *
 * How it fails: a token that is used, too old, made up or another process's is refused. A process
 * that leaves tokens unused loses its oldest ones, and if its user has too many through other
 * processes, it gets no more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "clients.h"
#include "programs/programs.h"
#include "quota.h"
#include "request.h"
#include "tokens.h"

#define TOKENS_MAX	   16384u
#define TOKENS_PER_PROCESS 256u
#define RANGES_PER_SHARE   64u /* ranges for which a fork's token counts once more */

/* Returns whether the process has ended. A zombie has: its children have another parent already.
   If it can't be looked into, it has not. */
static bool has_ended(const struct process *process)
{
	struct process now;
	int rc = process_find(process->pid, &now);

	return rc == -ESRCH || (!rc && now.start_ticks != process->start_ticks) ||
	       process_state(process->pid) == 'Z';
}

static uint64_t now_ticks(void)
{
	struct timespec now;
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * hz + (uint64_t)now.tv_nsec * hz / 1000000000u;
}

/* ---- which process a token is for ----------------------------------------------------------- */

/* Whether that is a child of the process that asked for the token, which may have ended since it
   forked. */
static bool is_child(const struct token *token, const struct process *who)
{
	if (who->uid != token->process.uid || who->start_ticks < token->made_ticks)
		return false;
	return process_parent(who->pid) == token->process.pid || has_ended(&token->process);
}

static bool same_process(const struct process *a, const struct process *b)
{
	/* The analyzer does not see that take_out moves the list's head past a token that is freed. */
	return a->pid == b->pid && /* NOLINT(clang-analyzer-unix.Malloc) */
	       a->start_ticks == b->start_ticks;
}

int token_refused(struct ramp_err *err)
{
	return ramp_err_set(err, EPERM, "the token is used, old, of another process or made up");
}

int token_check(const struct token *token, struct client_request *r, struct ramp_err *err)
{
	struct process who;
	int rc = process_find(r->pid, &who);

	/* It was looked at, and lived afterwards: it was this process, and none before it with
	   its pid. */
	if (!rc && !process_lives(r->pidfd))
		rc = -ESRCH;
	if (rc)
		return ramp_err_sys(err, -rc, "looking at process %d", (int)r->pid);
	if (token->id ? same_process(&who, &token->process) : is_child(token, &who))
		return 0;
	return token_refused(err);
}

/* ---- the table ------------------------------------------------------------------------------ */

void token_free(struct token *token)
{
	if (token)
		free(token->ranges);
	free(token);
}

/* p->lock is held; so for the next two functions. */
static void take_out(struct programs *p, struct token *token)
{
	LIST_REMOVE(token, link);
	p->n_tokens--;
	quota_give(p->quota, token->process.uid, QUOTA_TOKENS, token->share);
}

static void drop_old(struct programs *p)
{
	struct token *token, *next;
	uint64_t now = clock_ms();

	for (token = LIST_FIRST(&p->tokens); token; token = next) {
		next = LIST_NEXT(token, link);
		if (token->until_ms >= now)
			continue;
		take_out(p, token);
		token_free(token);
	}
}

/* Drops the oldest token of the process: the last one, since the newest come first. False: it
   has none, or (`many`) has not reached its limit. */
static bool drop_own(struct programs *p, const struct process *process, bool many)
{
	struct token *token, *oldest = NULL;
	uint32_t count = 0;

	LIST_FOREACH (token, &p->tokens, link)
		if (same_process(&token->process, process)) {
			oldest = token;
			count++;
		}
	if (!oldest || (many && count < TOKENS_PER_PROCESS))
		return false;
	take_out(p, oldest);
	token_free(oldest);
	return true;
}

int token_add(struct programs *p, struct token *token, uint64_t secret[2], struct ramp_err *err)
{
	bool taken = false;

	secret[0] = token->secret[0] = ramp_random64();
	secret[1] = token->secret[1] = ramp_random64();
	token->until_ms = clock_ms() + p->token_ms;
	token->made_ticks = now_ticks();
	token->share = 1 + token->count / RANGES_PER_SHARE;
	pthread_mutex_lock(&p->lock);
	drop_old(p);
	drop_own(p, &token->process, true);
	do
		taken = p->n_tokens < TOKENS_MAX &&
			quota_take(p->quota, token->process.uid, QUOTA_TOKENS, token->share,
				   QUOTA_DEFAULT);
	while (!taken && drop_own(p, &token->process, false));
	if (taken) {
		LIST_INSERT_HEAD(&p->tokens, token, link);
		p->n_tokens++;
	}
	pthread_mutex_unlock(&p->lock);
	if (taken)
		return 0;
	token_free(token);
	return ramp_err_set(err, EDQUOT, "its user has too many mappings under way");
}

struct token *token_take(struct programs *p, const uint64_t secret[2])
{
	struct token *token;

	pthread_mutex_lock(&p->lock);
	drop_old(p);
	LIST_FOREACH (token, &p->tokens, link)
		if (!((token->secret[0] ^ secret[0]) | (token->secret[1] ^ secret[1])))
			break;
	if (token)
		take_out(p, token);
	pthread_mutex_unlock(&p->lock);
	return token;
}

void tokens_expire(struct programs *p)
{
	pthread_mutex_lock(&p->lock);
	drop_old(p);
	pthread_mutex_unlock(&p->lock);
}

void tokens_close(struct programs *p)
{
	struct token *token;

	while ((token = LIST_FIRST(&p->tokens))) {
		LIST_REMOVE(token, link);
		token_free(token);
	}
}

int programs_token(struct programs *p, ramp_segment_t id, int access_mode, pid_t pid,
		   uint64_t secret[2], struct ramp_err *err)
{
	struct token *token = calloc(1, sizeof(*token));
	int rc;

	if (!token)
		return ramp_err_sys(err, ENOMEM, "a token");
	token->id = id;
	token->access_mode = access_mode & O_ACCMODE;
	rc = process_find(pid, &token->process);
	if (rc) {
		token_free(token);
		return ramp_err_sys(err, -rc, "looking at process %d", (int)pid);
	}
	return token_add(p, token, secret, err);
}
