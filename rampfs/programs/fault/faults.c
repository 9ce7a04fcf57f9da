/*
 * Page faults as they arrive: which page of which segment they want, and which of them the pager
 * gets.
 *
 * A page fault arrives at the pager (client_read), which fills the page in the file and calls
 * client_resolve (resolve.c): CONTINUE maps the page where the page fault was, and wakes the thread
 * that waits there. A thread of another process that waits for the same page has a page fault of
 * its own, which the pager has read and remembers, or is about to read: so one page costs one
 * process's CONTINUE, however many processes have the segment attached.
 *
 * While a segment is FROZEN its page faults are read and left: the end of the freeze wakes the
 * whole range, and an access that still can't be made then raises its page fault again. That holds
 * for every case here: where it is not clear what to do with a page fault, wake it.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "programs/attach/mapped_segment.h"
#include "programs/client/clients.h"
#include "programs/client/uffd.h"
#include "programs/programs.h"

/* Returns the mapped segment that is attached at `addr`, with a reference, and its page there;
   NULL: none. */
static struct mapped_segment *find_page(struct client *client, uint64_t addr, uint64_t *page)
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

/* Returns true where the pager is to serve this page fault. */
static bool take_fault(struct client *client, const struct uffd_msg *msg,
		       struct client_fault *fault)
{
	struct programs *p = client->programs;
	bool wait = false, serve = false;
	struct mapped_segment *mseg;

	*fault = (struct client_fault){
		.addr = msg->arg.pagefault.address,
		.tid = (pid_t)msg->arg.pagefault.feat.ptid,
		.write = msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE,
	};
	mseg = find_page(client, fault->addr, &fault->page);
	if (!mseg) {
		/* The program has moved or grown a mapping by itself; or no segment is there. */
		atomic_store(&client->stray_fault, fault->addr);
		client_look_soon(client);
		client_wake(client, fault->addr);
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
		client_wake(client, fault->addr);
	return serve;
}

int client_read(struct client *client, struct client_fault *faults, int max, bool *more)
{
	struct uffd_msg msgs[UFFD_READ_MAX];
	size_t room = max < UFFD_READ_MAX ? (size_t)max : UFFD_READ_MAX;
	ssize_t n = uffd_read(client, msgs, room);
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
			uffd_take_event(client, &msgs[i]);
		else if (take_fault(client, &msgs[i], &faults[count]))
			count++;
	return count;
}
