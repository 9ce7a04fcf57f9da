/*
 * Userfaultfds: the handshake, registering, reading what arrives on them, and waking accesses that
 * wait.
 *
 * How it fails: if a process has ended, the kernel says -ESRCH; there is nothing left to do for it.
 * While a remap event is unread, the kernel says -EAGAIN: then uffd_drain reads it, on whichever
 * thread it is, and wakes the page faults that it reads on the way; they come again, to the pager.
 * A thread that also serves other clients tries that a few times only, and then wakes the access: a
 * program can mremap all the time.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/kernel.h"
#include "broker_release.h"
#include "clients.h"
#include "programs/programs.h"
#include "uffd.h"

#define READ_TRIES    3u /* after an error for which the kernel has no reason */
#define DISARM_TRIES  3u /* likewise */
#define READING_TRIES 50
#define HOLD_TRIES    1000
#define YIELD_TRIES   8
#define UFFD_FEATURES                                                                              \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |  \
	 UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_THREAD_ID |     \
	 KERNEL_UFFD_WP_UNPOPULATED | KERNEL_UFFD_WP_ASYNC | KERNEL_UFFD_POISON)

static int handshake(int uffd, uint64_t features, struct ramp_err *err)
{
	struct pollfd at = {.fd = uffd, .events = POLLIN};
	int rc = kernel_uffd_api(uffd, features);

	/* A daemon before this one has done it already: then other ioctls work. */
	if (rc == -EINVAL)
		rc = kernel_uffd_wake(uffd, RAMP_PAGE_BYTES, RAMP_PAGE_BYTES);
	if (rc)
		return ramp_err_sys(err, -rc, "userfaultfd of Linux 6.7 or later");
	if (poll(&at, 1, 0) < 0 || at.revents & POLLERR)
		return ramp_err_set(err, EINVAL, "the userfaultfd is not O_NONBLOCK");
	return 0;
}

int uffd_handshake(int uffd, struct ramp_err *err)
{
	return handshake(uffd, UFFD_FEATURES, err);
}

void uffd_handshake_second(struct client *client)
{
	struct ramp_err err;

	if (client->second < 0 ||
	    !handshake(client->second, UFFD_FEATURES & ~KERNEL_UFFD_WP_ASYNC, &err))
		return;
	broker_release(client->programs, client->uid, client->second);
	client->second = -1;
}

int uffd_arm(struct client *client, uint64_t start, uint64_t end)
{
	return kernel_uffd_register(client->uffd, start, end - start, KERNEL_UFFD_MODES);
}

int uffd_hold(struct client *client, uint64_t start, uint64_t end, uint64_t len)
{
	int rc;

	if (client->second < 0)
		return -EOPNOTSUPP;
	atomic_store(&client->held, true);
	rc = kernel_uffd_register(client->second, start, end - start, UFFDIO_REGISTER_MODE_WP);
	for (int i = 0; len && !rc; i++) {
		rc = kernel_uffd_protect(client->second, start, len, true);
		if (rc != -EAGAIN || i == HOLD_TRIES)
			break;
		rc = 0; /* the program remaps: the agent's guard reads that */
		uffd_let_others(i);
	}
	return rc;
}

static void unregister(int uffd, uint64_t start, uint64_t end)
{
	for (unsigned int i = 0; i < DISARM_TRIES; i++) {
		int rc = kernel_uffd_unregister(uffd, start, end - start);

		if (rc != -ENOMEM && rc != -EIO)
			break;
	}
}

/* Kernels differ in whether one userfaultfd may unregister what another one has registered: so each
   mapping is taken by itself. */
static int unregister_both(void *arg, const struct proc_mapping *m)
{
	struct client *client = arg;

	unregister(client->uffd, m->start, m->end);
	unregister(client->second, m->start, m->end);
	return 0;
}

static bool may_be_held(struct client *client)
{
	return client->second >= 0 && atomic_load(&client->held);
}

void uffd_wake(struct client *client, uint64_t start, uint64_t len)
{
	kernel_uffd_wake(client->uffd, start, len);
	if (may_be_held(client))
		kernel_uffd_wake(client->second, start, len);
}

/* A range that stays registered without need has page faults that no thread serves: they come
   again and again, until the next look. */
void uffd_disarm(struct client *client, uint64_t start, uint64_t end)
{
	if (may_be_held(client))
		(void)mappings_each(&client->mappings, start, end, unregister_both, client);
	unregister(client->uffd, start, end);
	uffd_wake(client, start, end - start);
}

/* ---- reading -------------------------------------------------------------------------------- */

/*
 * Returns the bytes read, or -errno. RWF_NOWAIT and not read(2): the file's O_NONBLOCK is shared
 * with the program, which may take it away. Kernels before 6.10 have no such read for a
 * userfaultfd; there O_NONBLOCK is trusted.
 */
static ssize_t read_from(int uffd, struct uffd_msg *msgs, size_t count)
{
	struct iovec io = {msgs, count * sizeof(*msgs)};
	ssize_t n = 0;

	for (unsigned i = 0; i < READ_TRIES; i++) {
		n = preadv2(uffd, &io, 1, -1, RWF_NOWAIT);
		if (n < 0 && errno == EOPNOTSUPP)
			n = read(uffd, io.iov_base, io.iov_len);
		if (n >= 0 || errno == EAGAIN)
			break;
	}
	return n < 0 ? -errno : n;
}

/* Whether the event is a move of page tables that this daemon has asked for. */
static bool is_noted(struct client *client, const struct uffd_msg *msg)
{
	return away_take_event(client, msg->arg.remap.from, msg->arg.remap.to, msg->arg.remap.len);
}

/* Whether it is of a mapping that is just put in its place, and looked at next (replace.c). */
static bool is_swap(struct client *client, const struct uffd_msg *msg)
{
	return away_take_swap(client, msg->arg.remap.from, msg->arg.remap.to, msg->arg.remap.len);
}

/* A reader counts a program's remap event before another thread may conclude that there was none: see
   uffd_remaps. */
ssize_t uffd_read(struct client *client, struct uffd_msg *msgs, size_t count)
{
	ssize_t n;

	atomic_fetch_add(&client->reading, 1);
	n = read_from(client->uffd, msgs, count);
	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msgs); i++)
		if (msgs[i].event == UFFD_EVENT_REMAP && !is_noted(client, &msgs[i]))
			atomic_fetch_add(&client->remaps, 1);
	atomic_fetch_sub(&client->reading, 1);
	return n;
}

/* The thread that is waited for needs a processor. sched_yield does not give it this one while
   the pager, which has real-time priority, is the one that yields. */
void uffd_let_others(int tries)
{
	if (tries < YIELD_TRIES)
		sched_yield();
	else
		usleep(1);
}

/* An event that is not read yet makes every ioctl that fills pages return EAGAIN, before the kernel
   looks at its argument. */
bool uffd_remapping(struct client *client)
{
	struct uffdio_continue nothing = {0};

	return ioctl(client->uffd, UFFDIO_CONTINUE, &nothing) && errno == EAGAIN;
}

/* An event that was read is counted, but its reader may not have got there yet. */
bool uffd_remaps(struct client *client, uint64_t *count)
{
	if (uffd_remapping(client))
		return false;
	for (int i = 0; i < READING_TRIES && atomic_load(&client->reading); i++)
		uffd_let_others(i);
	*count = atomic_load(&client->remaps);
	return !atomic_load(&client->reading);
}

void uffd_take_event(struct client *client, const struct uffd_msg *msg)
{
	if (msg->event == UFFD_EVENT_REMAP && !is_noted(client, msg) && !is_swap(client, msg))
		client_look_soon(client);
	else if (msg->event == UFFD_EVENT_FORK)
		broker_release(client->programs, client->uid,
			       /* The daemon never asked for fork events; the program did. */
			       (int)msg->arg.fork.ufd);
}

void client_wake(struct client *client, uint64_t addr)
{
	kernel_uffd_wake(client->uffd, addr & ~(uint64_t)(RAMP_PAGE_BYTES - 1), RAMP_PAGE_BYTES);
}

void client_wake_all(struct client *client)
{
	const struct programs *p = client->programs;

	uffd_wake(client, p->arena_lo, p->arena_hi - p->arena_lo);
}

void uffd_drain_but(struct client *client, uint64_t lo, uint64_t hi)
{
	struct uffd_msg msgs[UFFD_READ_MAX];
	ssize_t n = uffd_read(client, msgs, UFFD_READ_MAX);

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msgs); i++) {
		uint64_t addr = msgs[i].arg.pagefault.address;

		if (msgs[i].event != UFFD_EVENT_PAGEFAULT)
			uffd_take_event(client, &msgs[i]);
		else if (addr < lo || addr >= hi)
			client_wake(client, addr);
	}
}

void uffd_drain(struct client *client)
{
	uffd_drain_but(client, 0, 0);
}
