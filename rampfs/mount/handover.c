/*
 * The file that outlives a daemon.
 *
 * The same program reads it on the same machine while the machine is up, so it is a mapped struct
 * without an encoding. Every entry becomes valid by one store (connection, reply_len, unique), made
 * after all its other fields.
 */
#include "handover.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/kernel.h"

#define HANDOVER_MAGIC	 UINT64_C(0x3130726576646e68)
#define HANDOVER_VERSION 2

struct handover_append {
	_Atomic uint64_t unique; /* 0: free */
	_Atomic uint64_t id;	 /* 0: it has been written, `len` bytes of it */
	uint64_t offset, len;
};

struct handover_file {
	uint64_t magic, version;
	_Atomic uint64_t connection;
	_Atomic uint64_t init_len, reply_len; /* 0: not yet */
	uint8_t init[HANDOVER_INIT_BYTES];
	uint8_t reply[HANDOVER_INIT_BYTES];
	struct handover_append appends[HANDOVER_APPENDS];
	struct handover_passthroughs passes;
	_Atomic uint64_t move_unique; /* 0: none */
	_Atomic ramp_segment_t move_id;
	/* An older version's file ends before these, and reads as zeros here. */
	_Atomic uint64_t trying; /* the request that is carried out again; 0: none */
	uint64_t deadly,
		deaths_of; /* the number of daemons in a row that died of request `deadly` */
};

struct handover {
	struct handover_file *file;
	pthread_mutex_t lock; /* held while a free slot is searched for */
};

static void handover_store(_Atomic uint64_t *at, uint64_t value)
{
	atomic_store_explicit(at, value, memory_order_release);
}

static uint64_t handover_load(const _Atomic uint64_t *at)
{
	return atomic_load_explicit(at, memory_order_acquire);
}

/* Copies the devices of earlier connections, with that of the last one in front. Of too many, the
   oldest is forgotten. */
static void keep_former(struct handover_file *file, uint64_t former[HANDOVER_FORMER])
{
	if (file->magic != HANDOVER_MAGIC || file->version != HANDOVER_VERSION)
		return;
	memcpy(former, file->passes.former, sizeof(file->passes.former));
	if (!file->passes.dev)
		return;
	memmove(former + 1, former, (HANDOVER_FORMER - 1) * sizeof(*former));
	former[0] = file->passes.dev;
}

/* Wipes the file for a new connection. A kill in the middle makes the next daemon begin again: at
   worst a mount is remembered twice, or one from which nothing could be mapped any more. */
static void begin_connection(struct handover_file *file, uint64_t connection)
{
	uint64_t former[HANDOVER_FORMER] = {0};

	keep_former(file, former);
	handover_store(&file->connection, 0);
	memcpy(file->passes.former, former, sizeof(former));
	memset(&file->passes.opens, 0, sizeof(file->passes.opens));
	file->passes.opening = file->passes.closing = file->passes.dev = 0;
	handover_store(&file->move_unique, 0);
	file->trying = file->deadly = file->deaths_of = 0;
	memset(file, 0, offsetof(struct handover_file, passes));
	file->magic = HANDOVER_MAGIC;
	file->version = HANDOVER_VERSION;
	handover_store(&file->connection, connection);
}

/* Counts the death of the last daemon. A kill in the middle may count it twice. */
static void count_death(struct handover_file *file)
{
	uint64_t unique = handover_load(&file->trying);

	if (unique != file->deadly)
		file->deaths_of = 0;
	file->deadly = unique;
	if (unique)
		file->deaths_of++;
	handover_store(&file->trying, 0);
}

bool handover_living(int fd, uint64_t connection)
{
	struct {
		uint64_t magic, version, connection, init_len, reply_len;
	} head;

	_Static_assert(offsetof(struct handover_file, init) == sizeof(head), "its first fields");
	return pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	       head.magic == HANDOVER_MAGIC && head.version == HANDOVER_VERSION &&
	       head.connection == connection && head.reply_len;
}

int handover_open(int fd, uint64_t connection, struct handover **out, struct ramp_err *err)
{
	struct handover *h = calloc(1, sizeof(*h));
	int rc;

	if (!h) {
		rc = ramp_err_sys(err, ENOMEM, "handover");
		goto out_fd;
	}
	if (ftruncate(fd, sizeof(*h->file))) {
		rc = ramp_err_sys(err, errno, "handover file");
		goto err_alloc;
	}
	h->file = mmap(NULL, sizeof(*h->file), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		       fd, 0);
	if (h->file == MAP_FAILED) {
		rc = ramp_err_sys(err, errno, "mapping the handover file");
		goto err_alloc;
	}
	if (h->file->magic != HANDOVER_MAGIC || h->file->version != HANDOVER_VERSION ||
	    handover_load(&h->file->connection) != connection ||
	    handover_load(&h->file->init_len) > HANDOVER_INIT_BYTES ||
	    handover_load(&h->file->reply_len) > HANDOVER_INIT_BYTES)
		begin_connection(h->file, connection);
	count_death(h->file);
	pthread_mutex_init(&h->lock, NULL);
	*out = h;
	rc = 0;
	goto out_fd;

err_alloc:
	free(h);
out_fd:
	close(fd);
	return rc;
}

void handover_close(struct handover *h)
{
	munmap(h->file, sizeof(*h->file));
	pthread_mutex_destroy(&h->lock);
	free(h);
}

int handover_save_init(struct handover *h, const void *in, size_t len)
{
	if (len > HANDOVER_INIT_BYTES)
		return -EMSGSIZE;
	memcpy(h->file->init, in, len);
	handover_store(&h->file->init_len, len);
	return 0;
}

void handover_save_reply(struct handover *h, const void *out, size_t len)
{
	if (len > HANDOVER_INIT_BYTES)
		len = HANDOVER_INIT_BYTES;
	memcpy(h->file->reply, out, len);
	handover_store(&h->file->reply_len, len);
}

const void *handover_init(struct handover *h, size_t *len)
{
	*len = handover_load(&h->file->reply_len) ? handover_load(&h->file->init_len) : 0;
	return *len ? h->file->init : NULL;
}

const void *handover_reply(struct handover *h, size_t *len)
{
	*len = handover_load(&h->file->reply_len);
	return *len ? h->file->reply : NULL;
}

void handover_patch_reply(const void *in, size_t in_len, void *out, size_t out_len)
{
	const struct fuse_in_header *header = in;
	struct fuse_init_in offered = {0};
	struct fuse_init_out reply = {0};
	const uint32_t depth = 1; /* our filesystem above the store's tmpfs */

	if (in_len <= sizeof(*header) || out_len > sizeof(reply) ||
	    out_len < offsetof(struct fuse_init_out, flags2) + sizeof(reply.flags2))
		return;
	in_len -= sizeof(*header);
	memcpy(&offered, header + 1, in_len < sizeof(offered) ? in_len : sizeof(offered));
	if (!(offered.flags & FUSE_INIT_EXT))
		return;
	memcpy(&reply, out, out_len);
	reply.flags |= FUSE_INIT_EXT | (offered.flags & FUSE_PARALLEL_DIROPS);
	reply.flags2 |= offered.flags2 & KERNEL_FUSE2_HAS_RESEND;
	if ((offered.flags2 & KERNEL_FUSE2_PASSTHROUGH) &&
	    out_len >= KERNEL_FUSE_INIT_OUT_STACK_DEPTH_OFFSET + sizeof(depth)) {
		reply.flags2 |= KERNEL_FUSE2_PASSTHROUGH;
		memcpy((uint8_t *)&reply + KERNEL_FUSE_INIT_OUT_STACK_DEPTH_OFFSET, &depth,
		       sizeof(depth));
	}
	memcpy(out, &reply, out_len);
}

void handover_move_begin(struct handover *h, uint64_t unique, ramp_segment_t id)
{
	handover_store(&h->file->move_unique, 0);
	handover_store(&h->file->move_id, id);
	handover_store(&h->file->move_unique, unique);
}

ramp_segment_t handover_move(struct handover *h, uint64_t unique)
{
	return handover_load(&h->file->move_unique) == unique ? handover_load(&h->file->move_id)
							      : 0;
}

struct handover_passthroughs *handover_passthroughs(struct handover *h)
{
	return &h->file->passes;
}

int handover_append_begin(struct handover *h, uint64_t unique, ramp_segment_t id, uint64_t size,
			  uint64_t len, struct handover_append **slot, uint64_t *at)
{
	struct handover_append *appends = h->file->appends, *free_slot;
	int rc = HANDOVER_NEW, free_at = -1;

	pthread_mutex_lock(&h->lock);
	for (int i = 0; i < HANDOVER_APPENDS; i++) {
		uint64_t u = handover_load(&appends[i].unique);

		if (u == unique) {
			*slot = &appends[i];
			*at = appends[i].offset;
			rc = HANDOVER_BEGUN;
			goto unlock;
		}
		if (!u && free_at < 0)
			free_at = i;
		if (u && handover_load(&appends[i].id) == id &&
		    appends[i].offset + appends[i].len > size)
			size = appends[i].offset + appends[i].len;
	}
	if (free_at < 0) {
		rc = -EBUSY;
		goto unlock;
	}
	free_slot = &appends[free_at];
	handover_store(&free_slot->id, id);
	free_slot->offset = size;
	free_slot->len = len;
	handover_store(&free_slot->unique, unique);
	*slot = free_slot;
	*at = size;
unlock:
	pthread_mutex_unlock(&h->lock);
	return rc;
}

void handover_append_written(struct handover_append *slot, uint64_t len)
{
	slot->len = len;
	handover_store(&slot->id, 0);
}

bool handover_append_done(struct handover *h, uint64_t unique, uint64_t *len)
{
	for (int i = 0; i < HANDOVER_APPENDS; i++) {
		const struct handover_append *slot = &h->file->appends[i];

		if (handover_load(&slot->unique) != unique || handover_load(&slot->id))
			continue;
		*len = slot->len;
		return true;
	}
	return false;
}

void handover_append_end(struct handover_append *slot)
{
	handover_store(&slot->unique, 0);
}

void handover_append_drop(struct handover *h, uint64_t unique)
{
	for (int i = 0; i < HANDOVER_APPENDS; i++)
		if (handover_load(&h->file->appends[i].unique) == unique)
			handover_store(&h->file->appends[i].unique, 0);
}

void handover_forget_others(struct handover *h, const uint64_t *uniques, size_t n)
{
	for (int i = 0; i < HANDOVER_APPENDS; i++) {
		uint64_t u = handover_load(&h->file->appends[i].unique);
		bool wanted = false;

		for (size_t j = 0; j < n && !wanted; j++)
			wanted = uniques[j] == u;
		if (!wanted)
			handover_store(&h->file->appends[i].unique, 0);
	}
}

void handover_try_begin(struct handover *h, uint64_t unique)
{
	handover_store(&h->file->trying, unique);
}

void handover_try_end(struct handover *h)
{
	handover_store(&h->file->trying, 0);
}

uint64_t handover_deaths(struct handover *h, uint64_t unique)
{
	return h->file->deadly == unique ? h->file->deaths_of : 0;
}
