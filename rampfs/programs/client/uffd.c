/*
 * Userfaultfds: the handshake, what arrives on them, and how waiting accesses go on.
 *
 * A page fault arrives at the pager (space_read), which fills the page in the file and calls
 * space_resolve (resolve.c): CONTINUE maps it where the page fault was and wakes who waits. Whoever
 * waits for the same page elsewhere has a page fault of his own, which the pager has read and
 * remembers, or is about to read: one page costs one process's CONTINUE, however many have the
 * segment attached. While a segment is FROZEN, faults are read and left: whoever ends the freeze
 * wakes the whole range, and what is still a fault then is raised again. That holds for every case
 * here: where it is not clear what to do with a fault, wake it.
 *
 * How it fails: a process that has ended says -ESRCH; there is nothing left to do for it. While a
 * remap event is unread the kernel says -EAGAIN: uffd_drain reads it, on whichever thread, and
 * wakes the faults that it reads on the way, so that the pager gets them. Who serves others, too,
 * tries that a few times, and wakes: a program can mremap all the time.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "memory/pages.h"
#include "programs/local.h"

#define READ_MAX      32
#define READ_TRIES    3u /* of an error that the kernel has no reason for */
#define DISARM_TRIES  3u /* the same */
#define EAGAIN_TRIES  2000
#define READING_TRIES 50
#define YIELD_TRIES   8
#define SAY_MS	      300u
#define UFFD_FEATURES                                                                              \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |  \
	 UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_THREAD_ID |     \
	 KERNEL_UFFD_WP_UNPOPULATED | KERNEL_UFFD_WP_ASYNC | KERNEL_UFFD_POISON)

int uffd_handshake(int uffd, struct ramp_err *err)
{
	struct pollfd at = {.fd = uffd, .events = POLLIN};
	int rc = kernel_uffd_api(uffd, UFFD_FEATURES);

	/* A daemon before this one has done it: then other ioctls work already. */
	if (rc == -EINVAL)
		rc = kernel_uffd_wake(uffd, RAMP_PAGE_BYTES, RAMP_PAGE_BYTES);
	if (rc)
		return ramp_err_sys(err, -rc, "userfaultfd of Linux 6.7 or later");
	if (poll(&at, 1, 0) < 0 || at.revents & POLLERR)
		return ramp_err_set(err, EINVAL, "the userfaultfd is not O_NONBLOCK");
	return 0;
}

int uffd_arm(struct space *client, uint64_t start, uint64_t end)
{
	return kernel_uffd_register(client->uffd, start, end - start, KERNEL_UFFD_MODES);
}

/* What stays registered without need has page faults that nobody serves: they come again and again,
   until the next look. */
void uffd_disarm(struct space *client, uint64_t start, uint64_t end)
{
	for (unsigned int i = 0; i < DISARM_TRIES; i++) {
		int rc = kernel_uffd_unregister(client->uffd, start, end - start);

		if (rc != -ENOMEM && rc != -EIO)
			break;
	}
	kernel_uffd_wake(client->uffd, start, end - start);
}

/* ---- reading -------------------------------------------------------------------------------- */

/*
 * Bytes, or -errno. RWF_NOWAIT and not read(2): the file's O_NONBLOCK is shared with the program,
 * which may take it away. Kernels before 6.10 know no such read, and there we trust it.
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

/* Who has read a remap event counts it before anybody may take it for none: see uffd_remaps. */
static ssize_t read_messages(struct space *client, struct uffd_msg *msgs, size_t count)
{
	ssize_t n;

	atomic_fetch_add(&client->reading, 1);
	n = read_from(client->uffd, msgs, count);
	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msgs); i++)
		if (msgs[i].event == UFFD_EVENT_REMAP)
			atomic_fetch_add(&client->remaps, 1);
	atomic_fetch_sub(&client->reading, 1);
	return n;
}

/* What we wait for needs a processor: by sched_yield this one is for nobody while the pager, which
   is at real-time priority, has it. */
void uffd_let_others(int tries)
{
	if (tries < YIELD_TRIES)
		sched_yield();
	else
		usleep(1);
}

/*
 * An event that nobody has read yet makes every ioctl that fills pages say EAGAIN, before it looks
 * at its argument; one that was read is counted, by a reader that may not have got there yet.
 */
bool uffd_remaps(struct space *client, uint64_t *count)
{
	struct uffdio_continue nothing = {0};

	if (ioctl(client->uffd, UFFDIO_CONTINUE, &nothing) && errno == EAGAIN)
		return false;
	for (int i = 0; i < READING_TRIES && atomic_load(&client->reading); i++)
		uffd_let_others(i);
	*count = atomic_load(&client->remaps);
	return !atomic_load(&client->reading);
}

/* Who was kept may come here at the daemon's end, and after it. */
static void look_later(struct space *client)
{
	struct programs *p = client->programs;

	atomic_store(&client->stale, true);
	pthread_mutex_lock(&p->lock);
	if (!atomic_load(&p->closing) && p->look)
		loop_wake_send(p->look);
	pthread_mutex_unlock(&p->lock);
}

/* What is not a page fault. */
static void take_event(struct space *client, const struct uffd_msg *msg)
{
	if (msg->event == UFFD_EVENT_REMAP)
		look_later(client);
	else if (msg->event == UFFD_EVENT_FORK)
		broker_release(
			client->programs, client->uid,
			(int)msg->arg.fork.ufd); /* we never asked for those; the program did */
}

void space_wake(struct space *client, uint64_t addr)
{
	kernel_uffd_wake(client->uffd, addr & ~(uint64_t)(RAMP_PAGE_BYTES - 1), RAMP_PAGE_BYTES);
}

void space_wake_all(struct space *client)
{
	const struct programs *p = client->programs;

	kernel_uffd_wake(client->uffd, p->arena_lo, p->arena_hi - p->arena_lo);
}

void uffd_drain(struct space *client)
{
	struct uffd_msg msgs[READ_MAX];
	ssize_t n = read_messages(client, msgs, READ_MAX);

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msgs); i++)
		if (msgs[i].event == UFFD_EVENT_PAGEFAULT)
			space_wake(client, msgs[i].arg.pagefault.address);
		else
			take_event(client, &msgs[i]);
}

/* The attachment's mseg with a reference, and the page; NULL: none. */
static struct mapped_segment *find_page(struct space *client, uint64_t addr, uint64_t *page)
{
	const struct attachment *a = NULL;
	struct mapped_segment *mseg = NULL;
	struct client_mappings *cm;

	pthread_mutex_lock(&client->list);
	cm = client_mappings_at(client, addr);
	if (cm)
		a = attachment_at(cm, addr);
	if (a) {
		*page = (a->offset + addr - a->start) / RAMP_PAGE_BYTES;
		mseg = mseg_hold(client->programs, cm->mseg);
	}
	pthread_mutex_unlock(&client->list);
	return mseg;
}

/* True where the pager shall have it. */
static bool take_fault(struct space *client, const struct uffd_msg *msg, struct space_fault *fault)
{
	struct programs *p = client->programs;
	bool wait = false, serve = false;
	struct mapped_segment *mseg;

	*fault = (struct space_fault){
		.addr = msg->arg.pagefault.address,
		.tid = (pid_t)msg->arg.pagefault.feat.ptid,
		.write = msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE,
	};
	mseg = find_page(client, fault->addr, &fault->page);
	if (!mseg) {
		/* A mapping that the program has moved or grown by itself; or none of ours. */
		atomic_store(&client->strange, fault->addr);
		look_later(client);
		space_wake(client, fault->addr);
		return false;
	}
	if (!pthread_rwlock_tryrdlock(&mseg->lock)) {
		wait = mseg->state != MSEG_OPEN;
		serve = !wait && mseg->pulling && mseg->seg;
		if (serve)
			fault->seg = seg_get(mseg->seg);
		pthread_rwlock_unlock(&mseg->lock);
	}
	mseg_put(p, mseg);
	if (!serve && !wait)
		space_wake(client, fault->addr);
	return serve;
}

int space_read(struct space *client, struct space_fault *faults, int max, bool *more)
{
	struct uffd_msg msgs[READ_MAX];
	size_t room = max < READ_MAX ? (size_t)max : READ_MAX;
	ssize_t n = read_messages(client, msgs, room);
	int count = 0;

	*more = n == (ssize_t)(room * sizeof(*msgs));
	if (n < 0 && n != -EAGAIN)
		log_error("process %d: its page faults can't be read, and wait for the next "
			  "daemon: %s",
			  (int)client->pid, strerror((int)-n));
	if (n < 0)
		return n == -EAGAIN ? -EAGAIN : -EIO;
	for (ssize_t i = 0; i < n / (ssize_t)sizeof(*msgs); i++)
		if (msgs[i].event != UFFD_EVENT_PAGEFAULT)
			take_event(client, &msgs[i]);
		else if (take_fault(client, &msgs[i], &faults[count]))
			count++;
	return count;
}

/* ---- a page that is lost -------------------------------------------------------------------- */

struct poison {
	struct programs *programs;
	struct mapped_segment *mseg;
	uint64_t page;
	char why[SESSION_TEXT_MAX];
};

static void poison_once(struct space *client, uint64_t addr)
{
	int64_t n;

	for (int tries = 0; tries < EAGAIN_TRIES; tries++) {
		kernel_uffd_protect(client->uffd, addr, RAMP_PAGE_BYTES, false);
		n = kernel_uffd_poison(client->uffd, addr, RAMP_PAGE_BYTES);
		if (n != -EAGAIN)
			break;
		uffd_drain(client);
		uffd_let_others(tries);
	}
}

/* LOCAL, and there: a hole that found no room is LOCAL as well. Maps it, which lifts a POISON. */
static bool map_good(struct mapped_segment *mseg, uint64_t page, struct space *client,
		     uint64_t addr)
{
	int64_t n = -EAGAIN;

	if (!mseg->seg || pages_get(mseg->seg, page) != PAGE_LOCAL)
		return false;
	for (int tries = 0; n == -EAGAIN && tries < EAGAIN_TRIES; tries++) {
		n = kernel_uffd_continue(client->uffd, addr, RAMP_PAGE_BYTES, false);
		if (n == -EAGAIN) {
			uffd_drain(client);
			uffd_let_others(tries);
		}
	}
	return n > 0;
}

/*
 * change is held, so that the segment stays what it is, but not mseg->lock: the program may keep us
 * here. Since the page was touched a write may have made it good, and may do so while we are here.
 * Who makes it LOCAL maps it afterwards, which lifts our POISON; who did both before ours is seen by
 * the second look.
 */
static void poison_range(struct mapped_segment *mseg, uint64_t page, struct space *client,
			 uint64_t addr)
{
	if (mseg->state == MSEG_OPEN && !map_good(mseg, page, client, addr)) {
		poison_once(client, addr);
		map_good(mseg, page, client, addr);
	}
	/* Of a segment that is frozen or gone, whoever ends that wakes. */
	if (mseg->state == MSEG_OPEN)
		space_wake(client, addr);
}

/* Where programs map that page, in the table as it stands: needs no memory. change is held. */
static void poison_untold(struct poison *job)
{
	uint64_t addr, from = job->page * RAMP_PAGE_BYTES;
	struct client_mappings *cm;

	RB_FOREACH (cm, attached_by_client, &job->mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			if (!cm->at[i].gone &&
			    attachment_overlap(&cm->at[i], from, from + RAMP_PAGE_BYTES, &addr))
				poison_range(job->mseg, job->page, cm->client, addr);
}

/* change is held. -ENOMEM: nothing has been done. */
static int tell_and_poison(struct poison *job)
{
	uint64_t from = job->page * RAMP_PAGE_BYTES;
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	uint64_t told = 0; /* the client with this id, none has 0 */
	bool say;

	if (mseg_refs(job->mseg, &refs, &count))
		return -ENOMEM;
	say = !job->mseg->poison_said;
	job->mseg->poison_said = true;
	for (size_t i = 0; i < count; i++) {
		struct mapping_ref *ref = &refs[i];
		struct session_msg msg = {.type = SESSION_SAY};

		if (ref->gone || from < ref->offset || from - ref->offset >= ref->end - ref->start)
			continue;
		if (say && ref->client->id != told) {
			told = ref->client->id;
			memcpy(msg.text, job->why, sizeof(msg.text));
			agent_call(ref->client, &msg, -1, now_ms() + SAY_MS, NULL);
		}
		poison_range(job->mseg, job->page, ref->client, ref->start + (from - ref->offset));
	}
	mapping_refs_free(refs, count);
	return 0;
}

static void run_poison(void *arg)
{
	struct poison *job = arg;

	pthread_mutex_lock(&job->mseg->change);
	job->mseg->poisoned = true;
	if (tell_and_poison(job)) {
		log_error("out of memory: programs are not told of a lost page");
		poison_untold(job);
	}
	pthread_mutex_unlock(&job->mseg->change);
	atomic_fetch_sub(&job->mseg->poisoning, 1);
	mseg_put(job->programs, job->mseg);
	free(job);
}

/* Who waits for that page tries again. */
static void wake_page(struct mapped_segment *mseg, uint64_t page)
{
	uint64_t addr, from = page * RAMP_PAGE_BYTES;
	struct client_mappings *cm;

	pthread_rwlock_rdlock(&mseg->lock);
	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			if (attachment_overlap(&cm->at[i], from, from + RAMP_PAGE_BYTES, &addr))
				space_wake(cm->client, addr);
	pthread_rwlock_unlock(&mseg->lock);
}

void programs_poison(struct programs *p, struct seg *seg, uint64_t page, const char *why)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	struct poison *job;

	if (!mseg)
		return;
	job = malloc(sizeof(*job));
	if (!job) {
		wake_page(mseg, page); /* until there is memory */
		mseg_put(p, mseg);
		return;
	}
	*job = (struct poison){.programs = p, .mseg = mseg, .page = page};
	snprintf(job->why, sizeof(job->why), "rampfs: %s", why);
	atomic_fetch_add(&mseg->poisoning, 1);
	workers_run_own(p->workers, seg_owner(seg).uid, run_poison, job); /* waits in programs */
}

/* ---- being pulled --------------------------------------------------------------------------- */

int programs_pulling(struct programs *p, struct seg *seg, struct ramp_err *err)
{
	struct mapped_segment *mseg = mseg_get(p, seg_id(seg));
	struct mapping_ref *refs = NULL;
	size_t count = 0;
	int rc;

	if (!mseg)
		return ramp_err_sys(err, ENOMEM, "attachments of segment %llu",
				    (unsigned long long)seg_id(seg));
	pthread_mutex_lock(&mseg->change);
	mseg_set_seg(mseg, seg);
	if (mseg->state == MSEG_GONE)
		atomic_store(&mseg->coming, true);
	/* The last page may have come before us, and programs_pulled with it. */
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->pulling = pages_missing(seg) > 0;
	pthread_rwlock_unlock(&mseg->lock);
	rc = mseg->pulling ? mseg_refs(mseg, &refs, &count) : 0;
	for (size_t i = 0; i < count; i++) {
		if (refs[i].gone)
			continue;
		/* What fails is not mapped any more, or the look after the next event finds it. */
		if (uffd_arm(refs[i].client, refs[i].start, refs[i].end))
			rc = mseg_look(p, mseg, refs[i].client);
		else /* a page fault that the pager saw before it knew the pull comes again */
			kernel_uffd_wake(refs[i].client->uffd, refs[i].start,
					 refs[i].end - refs[i].start);
	}
	mapping_refs_free(refs, count);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return rc ? ramp_err_sys(err, -rc, "attachments of segment %llu",
				 (unsigned long long)seg_id(seg))
		  : 0;
}

/* change is held, and no lock that page faults need. */
static void disarm_all(struct mapped_segment *mseg)
{
	struct client_mappings *cm;

	RB_FOREACH (cm, attached_by_client, &mseg->attached)
		for (size_t i = 0; i < cm->count; i++)
			uffd_disarm(cm->client, cm->at[i].start, cm->at[i].end);
}

struct disarm {
	struct programs *programs;
	struct mapped_segment *mseg; /* a reference */
};

static void run_disarm(void *arg)
{
	struct disarm *job = arg;

	pthread_mutex_lock(&job->mseg->change);
	if (!mseg_armed(job->mseg)) { /* by a freeze that has come meanwhile, or the next pull */
		job->mseg->watch.on = false; /* of a move that has begun: it looks again */
		disarm_all(job->mseg);
	}
	pthread_mutex_unlock(&job->mseg->change);
	mseg_put(job->programs, job->mseg);
	free(job);
}

/*
 * To let go of page faults takes the lock of a program's memory, which it may keep: that waits in the
 * share of the segment's owner, not in the thread of all pulls. Until then a page fault there comes
 * again and again, since nobody resolves it any more.
 */
bool programs_pulled(struct programs *p, struct seg *seg)
{
	struct mapped_segment *mseg = mseg_find(p, seg_id(seg));
	uid_t owner = seg_owner(seg).uid;
	struct disarm *job;

	if (!mseg)
		return true;
	job = malloc(sizeof(*job));
	if (!job || pthread_mutex_trylock(&mseg->change)) {
		free(job);
		mseg_put(p, mseg);
		return false;
	}
	pthread_rwlock_wrlock(&mseg->lock);
	mseg->pulling = false;
	mseg->watch.on = false;
	mseg->poison_said = false;
	pthread_rwlock_unlock(&mseg->lock);
	*job = (struct disarm){p, mseg_hold(p, mseg)};
	workers_run_own(p->workers, owner, run_disarm, job);
	if (mseg->poisoned && !unpoison_begin(p, mseg, owner))
		log_error("out of memory: segment %llu is whole, and some pages of it stay SIGBUS",
			  (unsigned long long)mseg->id);
	pthread_mutex_unlock(&mseg->change);
	mseg_put(p, mseg);
	return true;
}
