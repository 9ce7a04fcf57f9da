/*
 * Segments: allocated, mapped, grown, removed.
 *
 * A segment is mapped whole, to the end of its extent: so that it can grow without another mapping.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "alloc.h"
#include "base/clock.h"
#include "base/session.h"
#include "core_choice.h"
#include "error.h"
#include "list.h"
#include "segment.h"
#include "steps.h"

#define EXPORT	       __attribute__((visibility("default")))
#define LISTED_LOOK_MS 2 /* between looks whether it is listed */
#define GET_ID_TRIES   50
#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX - RAMP_PAGE_BYTES)

static int open_dir(const struct ramp_cluster *ramp, const char *node, int flags)
{
	int fd = openat(ramp->fd, node, flags | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

/* Returns the descriptor of a node's directory, or a negative errno. */
static int open_node(const struct ramp_cluster *ramp, const char *node)
{
	return open_dir(ramp, node, O_PATH);
}

/* ---- mapping -------------------------------------------------------------------------------- */

/* Beside RAMP_READ_ONLY: */
#define MAP_AHEAD 2
#define MAP_GIVEN 4 /* it has its extent */

static int map_range(struct ramp_segment *s, const char *name, int flags, uint64_t len)
{
	const struct core_calls *core = core_choice();
	char reason[SESSION_TEXT_MAX] = "";
	struct attach_call call = {
		.len = len,
		.prot = flags & RAMP_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE,
		.flags = MAP_SHARED,
		.fd = s->fd,
		.reason = reason,
		.ahead = flags & MAP_AHEAD,
		.session = &s->session,
	};
	uint64_t at;
	int rc;

	if (!core)
		return error_set(ELIBACC, name, "rampfs-run's library is of another version");
	rc = core->map(&call, &at);
	if (rc)
		return error_set(-rc, name, reason);
	s->data = (void *)(uintptr_t)at;
	return 0;
}

static void unmap_range(const struct ramp_segment *s, uint64_t len)
{
	const struct core_calls *core = core_choice();

	if (core)
		core->unmap(s->data, len, s->session);
}

static int read_extent(const struct ramp_segment *s, uint64_t *extent)
{
	char text[32];
	ssize_t n = fgetxattr(s->fd, "user.ramp.extent", text, sizeof(text) - 1);
	char *end;

	if (n < 0)
		return -errno;
	text[n] = '\0';
	*extent = strtoull(text, &end, 10);
	return *end || !*extent ? -EPROTO : 0;
}

/* The extent is known once the first page is mapped, or where the segment was made with it. */
static int map_whole(struct ramp_segment *s, const char *name, int flags)
{
	bool given = flags & MAP_GIVEN;
	int rc = given ? 0 : map_range(s, name, flags, RAMP_PAGE_BYTES);

	if (rc)
		return rc;
	rc = read_extent(s, &s->extent);
	if (rc)
		error_set(-rc, name, "its extent can't be read");
	else
		rc = map_range(s, name, flags, s->extent);
	if (!given)
		unmap_range(s, RAMP_PAGE_BYTES);
	return rc;
}

static int segment_fill(struct ramp_segment *s, const char *name, int flags)
{
	struct stat st;

	if (fstat(s->fd, &st))
		return error_set(errno, name, NULL);
	if (st.st_ino < RAMP_SEGMENT_ID_MIN)
		return error_set(EINVAL, name, "is not a segment");
	s->id = st.st_ino;
	return map_whole(s, name, flags);
}

/* Takes the open file; maps it, and hands it out. */
static int segment_map(struct ramp_cluster *ramp, int fd, const char *name, int flags,
		       struct ramp_segment **out)
{
	struct ramp_segment *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		close(fd);
		return error_set(ENOMEM, name, NULL);
	}
	s->fd = fd;
	rc = segment_fill(s, name, flags);
	if (rc) {
		close(fd);
		free(s);
		return rc;
	}
	s->ramp = handle_get(ramp);
	*out = s;
	return error_none();
}

/* ---- allocation ----------------------------------------------------------------------------- */

static bool is_name(const char *name)
{
	return name && name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0 && strlen(name) <= RAMP_NAME_MAX;
}

static int set_text(int fd, const char *attribute, const char *value)
{
	return fsetxattr(fd, attribute, value, strlen(value), 0) ? -errno : 0;
}

/* After all that its owner may do with an open file alone: the mode may forbid to open it. */
static int set_mode(int fd, const struct ramp_alloc *what)
{
	return what->mode && fchmod(fd, what->mode & 0777)
		       ? error_set(errno, what->name, "its mode")
		       : 0;
}

static int set_up(int fd, const struct ramp_alloc *what)
{
	char text[32];
	int rc = 0;

	if (what->no_huge)
		rc = set_text(fd, "user.ramp.pages", "small");
	if (!rc && what->extent) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)alloc_extent(what));
		rc = set_text(fd, "user.ramp.extent", text);
	}
	if (rc)
		return alloc_error(what, rc);
	if (ftruncate(fd, (off_t)((what->size + RAMP_PAGE_BYTES - 1) & ~(RAMP_PAGE_BYTES - 1))))
		return error_set(errno, what->name, "its size");
	return set_mode(fd, what);
}

/* In several commits: a daemon of the cluster is of an older version. */
static int alloc_in_steps(struct ramp_cluster *ramp, int dir, const struct ramp_alloc *what,
			  struct ramp_segment **out)
{
	int rc, fd = openat(dir, what->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return alloc_error(what, -errno);
	rc = set_up(fd, what);
	if (rc)
		close(fd);
	else
		rc = segment_map(ramp, fd, what->name, 0, out);
	if (rc)
		unlinkat(dir, what->name, 0);
	return rc;
}

static int alloc_in(struct ramp_cluster *ramp, int dir, const struct ramp_alloc *what,
		    struct ramp_segment **out)
{
	int fd, rc = alloc_at_once(dir, what);

	if (rc == -EOPNOTSUPP)
		return alloc_in_steps(ramp, dir, what, out);
	if (rc)
		return alloc_error(what, rc);
	fd = openat(dir, what->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	rc = fd < 0 ? error_set(errno, what->name, NULL) : 0;
	if (!rc && !alloc_has_mode(what))
		rc = set_mode(fd, what);
	if (rc && fd >= 0)
		close(fd);
	if (!rc)
		rc = segment_map(ramp, fd, what->name, MAP_GIVEN, out);
	if (rc)
		unlinkat(dir, what->name, 0);
	return rc;
}

EXPORT int ramp_alloc(struct ramp_cluster *ramp, const struct ramp_alloc *what,
		      struct ramp_segment **out)
{
	int rc, dir;

	*out = NULL;
	if (!is_name(what->name))
		return error_set(EINVAL, "ramp_alloc", "no name of a segment");
	if (!what->size || what->size > SIZE_MAX_BYTES || what->extent > SIZE_MAX_BYTES / 2)
		return error_set(EINVAL, what->name, "no size of a segment");
	if (what->extent && what->extent < what->size)
		return error_set(EINVAL, what->name, "the extent is smaller than the size");
	dir = open_dir(ramp, ramp->node, O_RDONLY);
	if (dir < 0)
		return error_set(-dir, ramp->node, NULL);
	rc = alloc_check(ramp, dir, what);
	rc = rc ? rc : alloc_in(ramp, dir, what, out);
	close(dir);
	return rc;
}

/* Removes a name. A segment that was just received has it here as soon as its move is committed. */
static int free_name(struct ramp_cluster *ramp, int dir, const char *name)
{
	while (unlinkat(dir, name, 0)) {
		if (errno != ENOENT || clock_ms() >= atomic_load(&ramp->listed_by_ms))
			return error_set(errno, name, NULL);
		poll(NULL, 0, LISTED_LOOK_MS);
	}
	return error_none();
}

EXPORT int ramp_free(struct ramp_cluster *ramp, const char *node, const char *name)
{
	int rc, dir;

	if (!is_name(name))
		return error_set(EINVAL, "ramp_free", "no name of a segment");
	dir = open_node(ramp, node ? node : ramp->node);
	if (dir < 0)
		return error_set(-dir, node ? node : ramp->node, NULL);
	rc = free_name(ramp, dir, name);
	close(dir);
	return rc;
}

/* ---- what is there already ------------------------------------------------------------------ */

/* The extent is known before the first page is mapped: the segment has it from where it comes. */
static int fill_ahead(struct ramp_segment *s, const char *name, uint64_t id)
{
	struct stat st;
	int rc = fstat(s->fd, &st) ? -errno : 0;

	if (!rc && st.st_ino != id)
		rc = -ESTALE; /* another one has that name by now */
	if (!rc)
		rc = read_extent(s, &s->extent);
	s->id = id;
	return rc ? rc : map_range(s, name, MAP_AHEAD, s->extent);
}

static int open_mode(int flags)
{
	return (flags & RAMP_READ_ONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW;
}

static int on_node(const char *what, const char *node)
{
	char why[128];

	snprintf(why, sizeof(why), "it is on node %s", node);
	return error_set(EREMOTE, what, why);
}

#define NO_TABLE "the table of segments can't be read"

/* Says on which other node a segment of that name is, where this node has none. */
static int not_here(struct ramp_cluster *ramp, const char *name)
{
	struct ramp_info info;
	int rc = list_find(ramp, 0, name, &info);

	return rc ? error_set(-rc, name, rc == -ENOENT ? NULL : NO_TABLE)
		  : on_node(name, info.node);
}

EXPORT int ramp_get(struct ramp_cluster *ramp, const char *name, int flags,
		    struct ramp_segment **out)
{
	int dir, fd, code;

	*out = NULL;
	if (!is_name(name) || (flags & ~RAMP_READ_ONLY))
		return error_set(EINVAL, "ramp_get", "no name of a segment, or an unknown flag");
	dir = open_node(ramp, ramp->node);
	if (dir < 0)
		return error_set(-dir, ramp->node, NULL);
	fd = openat(dir, name, open_mode(flags));
	code = errno;
	close(dir);
	if (fd < 0)
		return code == ENOENT ? not_here(ramp, name) : error_set(code, name, NULL);
	return segment_map(ramp, fd, name, flags, out);
}

int segment_map_ahead(struct ramp_cluster *ramp, const char *node, const char *name, uint64_t id,
		      struct ramp_segment **out)
{
	struct ramp_segment *s;
	int rc, dir = is_name(name) ? open_node(ramp, node) : -EINVAL;

	if (dir < 0)
		return dir;
	s = calloc(1, sizeof(*s));
	if (!s) {
		close(dir);
		return -ENOMEM;
	}
	s->fd = openat(dir, name, open_mode(0));
	rc = s->fd < 0 ? -errno : 0;
	close(dir);
	if (!rc)
		rc = fill_ahead(s, name, id);
	if (rc) {
		if (s->fd >= 0)
			close(s->fd);
		free(s);
		return rc;
	}
	s->ramp = handle_get(ramp);
	*out = s;
	return 0;
}

/* Gets it by the name that the table shows. -EAGAIN: it was renamed, or moved, between the two; the next look at the
   table tells. */
static int get_listed(struct ramp_cluster *ramp, uint64_t id, int flags, struct ramp_segment **out)
{
	struct ramp_info info;
	bool here;
	int rc = list_find(ramp, id, NULL, &info);

	if (rc)
		return error_set(-rc, "ramp_get_id",
				 rc == -ENOENT ? "there is no segment of that number" : NO_TABLE);
	here = strcmp(info.node, ramp->node) == 0;
	rc = ramp_get(ramp, info.name, flags, out);
	if (!rc && *out && (*out)->id != id) {
		ramp_put(*out);
		*out = NULL;
		rc = here ? -EAGAIN : on_node("ramp_get_id", info.node);
	} else if (here && (rc == -ENOENT || rc == -EREMOTE)) {
		rc = -EAGAIN;
	}
	return rc == -EAGAIN ? error_set(EAGAIN, "ramp_get_id", "its name changes just now") : rc;
}

EXPORT int ramp_get_id(struct ramp_cluster *ramp, uint64_t id, int flags, struct ramp_segment **out)
{
	int rc;

	*out = NULL;
	for (int i = 0; (rc = get_listed(ramp, id, flags, out)) == -EAGAIN && i < GET_ID_TRIES; i++)
		poll(NULL, 0, LISTED_LOOK_MS);
	return rc;
}

EXPORT void ramp_put(struct ramp_segment *s)
{
	if (!s)
		return;
	steps_forget(s);
	unmap_range(s, s->extent);
	close(s->fd);
	handle_put(s->ramp);
	free(s);
}

EXPORT void *ramp_data(const struct ramp_segment *s)
{
	return s->data;
}

EXPORT uint64_t ramp_extent(const struct ramp_segment *s)
{
	return s->extent;
}

EXPORT uint64_t ramp_id(const struct ramp_segment *s)
{
	return s->id;
}

EXPORT int64_t ramp_size(const struct ramp_segment *s)
{
	struct stat st;

	if (fstat(s->fd, &st))
		return error_set(errno, "ramp_size", NULL);
	error_none();
	return st.st_size;
}

EXPORT int ramp_resize(struct ramp_segment *s, uint64_t size)
{
	struct ramp_info info;
	int code;

	if (size > s->extent)
		return error_set(EFBIG, "ramp_resize", "that is more than its extent");
	if (!ftruncate(s->fd, (off_t)size))
		return error_none();
	code = errno;
	if (code == EREMOTE && !list_find(s->ramp, s->id, NULL, &info))
		return on_node(info.name, info.target[0] ? info.target : info.node);
	return error_set(code, "ramp_resize", NULL);
}

EXPORT int ramp_stat(const struct ramp_segment *s, struct ramp_info *out)
{
	int rc;

	/* Of a segment that was just received: until then it is listed where it came from. */
	while ((rc = list_find_later(s->ramp, s->id, s->came_in, out)) == -EAGAIN &&
	       clock_ms() < atomic_load(&s->ramp->listed_by_ms))
		poll(NULL, 0, LISTED_LOOK_MS);
	if (rc && rc != -EAGAIN)
		return error_set(-rc, "ramp_stat", rc == -ENOENT ? "it was removed" : NO_TABLE);
	return error_none();
}

EXPORT int ramp_migrate(struct ramp_segment *s, const char *node,
			const struct ramp_move_options *options)
{
	struct ramp_move *move;
	int rc = ramp_move_begin(s->ramp, s->id, node, options, &move);

	return rc ? rc : ramp_move_end(move);
}
