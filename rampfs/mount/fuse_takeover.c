/*
 * Taking over a living connection: the requests that the dead daemon had read and not answered.
 *
 * A request that ends the daemon as soon as it is carried out again is answered EIO after
 * DEATHS_MAX; one that ends them later, from another thread, can't be told from the others.
 */
#include "fuse_takeover.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "fuse_process.h"
#include "fuse_request.h"
#include "keeper/protocol.h"
#include "passthrough.h"

#define DEATHS_MAX 8 /* more than the keeper starts without a pause (QUICK_FREE) */

struct drained {
	STAILQ_ENTRY(drained) link;
	size_t len;
	uint8_t bytes[];
};
STAILQ_HEAD(drained_list, drained);

static void ask_resend(void)
{
	struct fuse_out_header notice = {.len = sizeof(notice),
					 .error = (int32_t)KERNEL_FUSE_NOTIFY_RESEND};

	if (write(KEEPER_FD_FUSE, &notice, sizeof(notice)) < 0)
		log_warn("requests that an earlier daemon had read are not sent again: %s",
			 strerror(errno));
}

/* Returns true when a request of this kind may come before the last one that is sent again. */
static bool no_reply_expected(uint32_t opcode)
{
	return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
}

/* Reads all requests that are sent again (they come first), and at most one request behind them. */
static int drain(uint8_t *buf, struct drained_list *list)
{
	for (;;) {
		ssize_t n = read(KEEPER_FD_FUSE, buf, RECEIVE_BYTES);
		struct fuse_in_header header;
		struct drained *d;

		if (n < 0 && (errno == ENOENT || errno == EINTR))
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n < (ssize_t)sizeof(header))
			return -EPROTO;
		d = malloc(sizeof(*d) + (size_t)n);
		if (!d)
			abort(); /* the next daemon has them sent again */
		d->len = (size_t)n;
		memcpy(d->bytes, buf, d->len);
		STAILQ_INSERT_TAIL(list, d, link);
		memcpy(&header, buf, sizeof(header));
		if (!(header.unique & KERNEL_FUSE_UNIQUE_RESEND) &&
		    !no_reply_expected(header.opcode))
			return 0;
	}
}

static void forget_other_appends(struct mount *m, struct drained_list *list)
{
	struct drained *d;
	uint64_t *uniques;
	size_t n = 0;

	STAILQ_FOREACH (d, list, link)
		n++;
	uniques = calloc(n + 1, sizeof(*uniques));
	if (!uniques)
		abort();
	n = 0;
	STAILQ_FOREACH (d, list, link) {
		struct fuse_in_header header;

		memcpy(&header, d->bytes, sizeof(header));
		uniques[n++] = header.unique & ~KERNEL_FUSE_UNIQUE_RESEND;
	}
	handover_forget_others(m->handover, uniques, n);
	free(uniques);
}

static void drop_drained(struct drained_list *list)
{
	struct drained *d;

	while ((d = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, link);
		free(d);
	}
}

/* Answers EIO to the one caller of that request, so that all others get a daemon. */
static void refuse_deadly(struct mount *m, const struct fuse_in_header *in, uint64_t unique)
{
	struct fuse_out_header out = {.len = sizeof(out), .error = -EIO, .unique = in->unique};

	log_error("%d daemons in a row have died of request %" PRIu64
		  " (kind %u, of process %u, on segment %" PRIu64 "): it is answered EIO",
		  DEATHS_MAX, unique, in->opcode, in->pid, in->nodeid);
	if (write(KEEPER_FD_FUSE, &out, sizeof(out)) < 0 && errno != ENOENT)
		log_warn("answering a request: %s", strerror(errno));
	handover_append_drop(m->handover, unique);
	passthrough_dropped(m, unique);
}

/* Carries out a request that was sent again, and counts the daemons that died of it: it would be
   sent again to each later daemon, for ever. */
static void process_again(struct mount *m, struct drained *d)
{
	struct fuse_buf buf = {.mem = d->bytes, .size = d->len};
	struct fuse_in_header header;
	uint64_t unique;

	memcpy(&header, d->bytes, sizeof(header));
	unique = header.unique & ~KERNEL_FUSE_UNIQUE_RESEND;
	if (header.opcode == FUSE_INIT || no_reply_expected(header.opcode)) {
		fuse_process(m, &buf);
	} else if (handover_deaths(m->handover, unique) >= DEATHS_MAX) {
		refuse_deadly(m, &header, unique);
	} else {
		handover_try_begin(m->handover, unique);
		fuse_process(m, &buf);
		handover_try_end(m->handover);
	}
}

static int set_nonblocking(bool on)
{
	int flags = fcntl(KEEPER_FD_FUSE, F_GETFL);

	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return fcntl(KEEPER_FD_FUSE, F_SETFL, flags);
}

int fuse_takeover(struct mount *m, uint8_t *buf, struct ramp_err *err)
{
	struct drained_list list = STAILQ_HEAD_INITIALIZER(list);
	struct drained *d;
	size_t len;
	int rc;

	ask_resend();
	if (handover_init(m->handover, &len)) {
		rc = fuse_process_saved_init(m, err);
		if (rc)
			return rc;
	}
	if (set_nonblocking(true))
		return ramp_err_sys(err, errno, "/dev/fuse");
	rc = drain(buf, &list);
	set_nonblocking(false);
	if (rc && rc != -ENODEV) {
		drop_drained(&list);
		return ramp_err_sys(err, -rc, "reading requests that are sent again");
	}
	if (rc)
		mount_end(m, MOUNT_UNMOUNTED);
	forget_other_appends(m, &list);
	meta_hold(m->config.meta);
	atomic_store(&m->sent_again, true);
	while ((d = STAILQ_FIRST(&list))) {
		STAILQ_REMOVE_HEAD(&list, link);
		process_again(m, d);
		free(d);
	}
	atomic_store(&m->sent_again, false);
	meta_release(m->config.meta);
	reply_buffer_free(); /* of the control thread, which serves no more requests */
	return 0;
}
