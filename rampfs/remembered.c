/*
 * The file `start` of the store: magic, version, node, key, cluster.conf's text, and a checksum.
 *
 * Happy path: written to a second name, which then replaces the first, so that a kill at any
 * instruction leaves one or the other.
 *
 * How it fails: a full store keeps the file that it has. A file that is damaged, or that another
 * version wrote, is none.
 */
#include "remembered.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hmac.h"
#include "base/log.h"
#include "base/statedir.h"
#include "base/wire.h"
#include "memory/store.h"
#include "mount/mount.h"

#define START_MAGIC   UINT64_C(0x3174726174736d72)
#define START_VERSION 1
#define START_MAX     65536 /* 64 nodes of some 300 bytes each, and the rest */

/* Opens a private file of the store, which is not open yet. */
static int open_private(const char *state_dir, const char *name)
{
	char path[PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s/store/%s", state_dir, name);

	if (len < 0 || len >= (int)sizeof(path))
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

bool remembered_living(const char *state_dir, uint64_t connection)
{
	int fd = open_private(state_dir, "mount");
	bool living = fd >= 0 && mount_was_served(fd, connection);

	if (fd >= 0)
		close(fd);
	return living;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int start_decode(const uint8_t *bytes, size_t len, struct statedir *dir,
			struct ramp_err *err)
{
	struct wire_r r;
	char *text;
	size_t text_len;
	const uint8_t *view;
	int rc;

	if (!wire_r_init_checked(&r, bytes, len) || wire_get_u64(&r) != START_MAGIC ||
	    wire_get_u8(&r) != START_VERSION)
		return -EPROTO;
	wire_get_str(&r, dir->node, sizeof(dir->node));
	wire_get_bytes(&r, dir->key, sizeof(dir->key));
	view = wire_get_view(&r, &text_len);
	if (!wire_r_done(&r))
		return -EPROTO;
	text = strndup((const char *)view, text_len);
	if (!text)
		return -ENOMEM;
	rc = config_parse(text, "the remembered cluster.conf", &dir->config, err);
	free(text);
	return rc;
}

static int start_read(const char *state_dir, struct statedir *dir, struct ramp_err *err)
{
	uint8_t *bytes = malloc(START_MAX);
	int fd = open_private(state_dir, "start");
	ssize_t n = fd >= 0 && bytes ? read(fd, bytes, START_MAX) : -1;
	int rc = -ENOENT;

	memset(dir, 0, sizeof(*dir));
	if (n >= 0 && !realpath(state_dir, dir->path))
		rc = -errno;
	else if (n >= 0)
		rc = start_decode(bytes, (size_t)n, dir, err);
	if (fd >= 0)
		close(fd);
	if (bytes)
		hmac_wipe(bytes, START_MAX);
	free(bytes);
	return rc;
}

int remembered_read(const char *state_dir, bool living, struct statedir *dir, struct ramp_err *err)
{
	struct ramp_err unread = {0}, unknown = {0};
	int rc = statedir_read(state_dir, dir, &unread);

	if (!rc)
		return 0;
	statedir_free(dir);
	if (!living || start_read(state_dir, dir, &unknown)) {
		*err = unread;
		return rc;
	}
	log_warn("%s; going on with what the daemon before this one has read: mend it, for a mount "
		 "after an umount needs it",
		 unread.text);
	return 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

static size_t start_encode(const struct statedir *dir, uint8_t *bytes)
{
	char *text = config_canonical(&dir->config);
	struct wire_w w;

	if (!text)
		return 0;
	wire_w_init(&w, bytes, START_MAX);
	wire_put_u64(&w, START_MAGIC);
	wire_put_u8(&w, START_VERSION);
	wire_put_str(&w, dir->node);
	wire_put_bytes(&w, dir->key, sizeof(dir->key));
	wire_put_str(&w, text);
	free(text);
	wire_put_u32(&w, w.bad ? 0 : wire_crc32c(bytes, w.len));
	return w.bad ? 0 : w.len;
}

void remembered_save(struct store *store, const struct statedir *dir)
{
	uint8_t *bytes = malloc(START_MAX);
	size_t len = bytes ? start_encode(dir, bytes) : 0;
	int rc = len ? store_replace_private(store, "start", bytes, len) : -ENOMEM;

	if (rc)
		log_warn("the next daemon will need the files of %s: the store has no room for a "
			 "copy: %s",
			 dir->path, strerror(-rc));
	if (bytes)
		hmac_wipe(bytes, START_MAX);
	free(bytes);
}
