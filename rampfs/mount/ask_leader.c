/*
 * Questions to the leader before negative answers. See ask_leader.h.
 *
 * Happy path: the first request begins a question (meta_sync). Requests that come while it is under
 * way need the next one, which begins with the answer and serves them all: a node has one question
 * under way at most, whatever number of programs look names up. The meta thread takes the answer
 * and wakes the park, which runs each request's own look again.
 *
 * How it fails: a request ends its wait after ASK_MS with what the tables hold then. Where the
 * question itself fails (no leader for 5 s, the daemon ends), every request that waits looks again at once.
 *
 * The kernel keeps no negative answer: with an entry time-out of 0 it drops a dentry without inode
 * at the next use of the name (fuse_dentry_revalidate) and asks the daemon again, also where one
 * program has waited for another's look-up of the same name. Its LOOKUP does not say whether a
 * create will follow; creates happen in the node's own directory alone, where nothing is asked.
 */
#include "ask_leader.h"

#include "inode.h"

/* Of the park: the requests that wait for an answer. No segment has that id. */
#define ASK_PARK_ID ((ramp_segment_t)INODE_ROOT)
/* A leader that has not answered for this time is taken for none. */
#define ASK_SILENT_MS 1000

static void ask_answered(void *arg, const struct meta_reply *reply)
{
	struct mount *m = arg;
	bool more;

	pthread_mutex_lock(&m->ask_lock);
	m->ask_answered = m->ask_sent;
	more = m->ask_more && reply->result == 0;
	if (m->ask_more && !more)
		m->ask_answered = ++m->ask_sent; /* a question that would fail, too */
	m->ask_more = false;
	if (more) {
		m->ask_sent++;
		m->ask_since_ms = park_now_ms();
	}
	pthread_mutex_unlock(&m->ask_lock);
	park_changed(m->park, ASK_PARK_ID);
	if (more)
		meta_sync(m->config.meta, ask_answered, m);
	else
		mount_put(m);
}

/* Returns the number of a question that begins after this call. */
static uint64_t ask_number(struct mount *m)
{
	uint64_t number;
	bool first;

	pthread_mutex_lock(&m->ask_lock);
	first = m->ask_answered == m->ask_sent;
	if (first) {
		m->ask_sent++;
		m->ask_since_ms = park_now_ms();
	} else {
		m->ask_more = true;
	}
	number = m->ask_sent + !first;
	pthread_mutex_unlock(&m->ask_lock);
	if (first)
		meta_sync(m->config.meta, ask_answered, mount_get(m));
	return number;
}

static enum park_verdict ask_step(struct parked *parked)
{
	struct parked_request *r = (struct parked_request *)parked;
	struct mount *m = r->mount;
	bool answered;

	pthread_mutex_lock(&m->ask_lock);
	answered = m->ask_answered >= r->question;
	pthread_mutex_unlock(&m->ask_lock);
	/* The park looks every PARK_TICK_MS: one tick later might be too late. */
	if (!answered && park_now_ms() - parked->since_ms < ASK_MS - PARK_TICK_MS)
		return PARK_WAIT;
	r->look_again(r);
	return PARK_DONE;
}

bool ask_leader_helps(struct mount *m, fuse_ino_t dir)
{
	enum inode_kind kind = inode_kind(dir);
	bool silent;

	if (kind != INODE_IS_ROOT && kind != INODE_IS_NODE)
		return false;
	if (kind == INODE_IS_NODE && inode_node(dir) == m->self && atomic_load(&m->caught_up))
		return false;
	if (!meta_leader(m->config.meta))
		return false;
	pthread_mutex_lock(&m->ask_lock);
	silent = m->ask_answered != m->ask_sent && park_now_ms() - m->ask_since_ms >= ASK_SILENT_MS;
	pthread_mutex_unlock(&m->ask_lock);
	return !silent;
}

bool ask_leader(struct parked_request *r, fuse_ino_t dir,
		void (*look_again)(struct parked_request *r))
{
	if (r->question || !ask_leader_helps(r->mount, dir))
		return false;
	r->look_again = look_again;
	r->parked.step = ask_step;
	r->question = ask_number(r->mount);
	park_wait(r->mount->park, &r->parked, ASK_PARK_ID);
	return true;
}

uint64_t ask_leader_count(struct mount *m)
{
	uint64_t n;

	pthread_mutex_lock(&m->ask_lock);
	n = m->ask_sent;
	pthread_mutex_unlock(&m->ask_lock);
	return n;
}
