#include "replace.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fork_gate.h"
#include "sys.h"
#include "table.h"

#define NEWS_PATIENCE_MS 100

/* Without the lock the table is read all the same. */
bool replace_is_news(const struct agent_session *session, const struct session_msg *msg)
{
	bool locked = futex_lock_for(&table.lock, NEWS_PATIENCE_MS), here = false, gone = false;

	for (uint32_t i = 0; i < table.ranges.n; i++) {
		const struct range *r = &table.ranges.at[i];

		if (r->segment != msg->segment || r->session != session->index)
			continue;
		if (r->flags & RANGE_GONE)
			gone = true;
		else
			here = true;
	}
	table_agent_unlock(locked);
	return here && !gone;
}

/* Maps the empty file elsewhere and moves it over the range. Returns 0 or a negative errno. */
static int put_beside(const struct range *r, int empty_fd)
{
	long z, at;

	z = fork_gate_mmap(0, r->len, r->prot, MAP_PRIVATE | MAP_NORESERVE, empty_fd, 0);
	if (z < 0)
		return (int)z;
	at = sys_mremap((uint64_t)z, r->len, r->len, MREMAP_MAYMOVE | MREMAP_FIXED, r->addr);
	if (at < 0) {
		sys_munmap((uint64_t)z, r->len);
		return (int)at;
	}
	return 0;
}

/* Maps the empty file over the range. Returns 0 or a negative errno. */
static int put_over(const struct range *r, int prot, int empty_fd)
{
	long at = fork_gate_mmap(r->addr, r->len, prot, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
				 empty_fd, 0);

	return at < 0 ? (int)at : 0;
}

/*
 * Puts the empty file in the place of a range. The process's limits (RLIMIT_AS, RLIMIT_MEMLOCK, the
 * number of mappings) may not allow both mappings at a time: then the empty file is mapped over the
 * segment. RLIMIT_DATA may not allow the empty file to be writable: then a store there is SIGSEGV.
 * It has to succeed in some way: a thread that touches the range must not wait for ever, and the
 * segment's bytes must not stay on this node.
 */
static int put_empty(struct range *r, int empty_fd)
{
	int rc = put_beside(r, empty_fd);

	if (rc) {
		sys_munlock(r->addr, r->len);
		rc = put_over(r, r->prot, empty_fd);
	}
	if (rc && (r->prot & PROT_WRITE))
		rc = put_over(r, r->prot & ~PROT_WRITE, empty_fd);
	if (rc == 0)
		r->flags |= RANGE_GONE;
	return rc;
}

/*
 * Ranges that the program has unmapped meanwhile stay unmapped. Ranges that it has mapped since
 * through the node that has the segment now belong to that node's session, and stay. Where no empty
 * file can be put, the piece is unmapped: a touch is SIGSEGV, and the segment is not put back when
 * it returns. All of the segment goes in the end: so where a piece can't be cut, the rest of it
 * goes a little earlier.
 */
static int put_empty_pieces(const struct agent_session *session, const struct session_msg *msg,
			    int fd)
{
	uint32_t i, last;
	int rc = 0;

	table_pieces_across(msg->addr, msg->len, &i, &last);
	for (uint32_t left = last - i; left && rc == 0; left--) {
		struct range *r = &table.ranges.at[i];

		if (r->segment != msg->segment || r->session != session->index ||
		    put_empty(r, fd) == 0) {
			i++;
			continue;
		}
		rc = sys_munmap(r->addr, r->len);
		if (rc == 0)
			ranges_remove(&table.ranges, i);
	}
	ranges_join(&table.ranges);
	return rc;
}

/* Whether the process may open nothing any more: the message has come, but its descriptor could
   not. */
static bool opens_nothing(int sock)
{
	int fd = dup(sock);

	if (fd >= 0)
		close(fd);
	return fd < 0 && errno == EMFILE;
}

int replace_gone(const struct agent_session *session, const struct session_msg *msg, int fd)
{
	struct range whole = {.addr = msg->addr, .len = msg->len, .prot = PROT_READ | PROT_WRITE};
	bool locked;
	int rc;

	if (fd < 0 && !opens_nothing(session->sock))
		return EINVAL;
	locked = table_agent_lock();
	rc = locked ? put_empty_pieces(session, msg, fd) : put_empty(&whole, fd);
	table_agent_unlock(locked);
	return -rc;
}

int replace_read_second(struct agent_session *session, const struct session_msg *msg)
{
	if (!(msg->flags & SESSION_SECOND))
		return 0;
	return session->second < 0 ? EOPNOTSUPP
				   : move_guard_begin(&session->second_guard, -1, session->second);
}

int replace_back(struct agent_session *session, const struct session_msg *msg, int fd, uint64_t *at)
{
	struct scratch *scratch = scratch_find(session, 0);
	long z;
	int rc;

	if (fd < 0)
		return EINVAL;
	if (!scratch)
		return ENOMEM;
	rc = replace_read_second(session, msg);
	if (rc)
		return rc;
	/* Without access at first: where the program has called mlockall(MCL_FUTURE), mmap(2) would
	   fill the mapping at once, before it is registered, and put zeros where pages are still
	   missing. */
	z = fork_gate_mmap(0, msg->len, PROT_NONE, segment_map_type(msg), fd, msg->offset);
	/* The present mapping of its place is locked as well, and RLIMIT_MEMLOCK is not enough for
	   both. */
	if (z == -EAGAIN && sys_munlock(msg->addr, msg->len) == 0)
		z = fork_gate_mmap(0, msg->len, PROT_NONE, segment_map_type(msg), fd, msg->offset);
	if (z < 0)
		return (int)-z;
	rc = sys_mprotect((uint64_t)z, msg->len, (int)msg->prot);
	if (rc) {
		sys_munmap((uint64_t)z, msg->len);
		return -rc;
	}
	if (msg->flags & SESSION_NOHUGE)
		sys_madvise((uint64_t)z, msg->len, MADV_NOHUGEPAGE);
	*scratch = (struct scratch){.at = (uint64_t)z,
				    .len = msg->len,
				    .prot = msg->prot,
				    .readonly = (msg->flags & SESSION_PRIVATE) != 0};
	*at = (uint64_t)z;
	return 0;
}
