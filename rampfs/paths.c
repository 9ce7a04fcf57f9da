#include "paths.h"

#include <errno.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/session.h"
#include "base/statedir.h"
#include "base/wire.h"
#include "options.h"

/* Finds the absolute path of a mountpoint. A dead mount answers ENOTCONN for its own path, but not
   for its parent's. */
static int find_mountpoint(const char *given, char out[PATH_MAX], struct ramp_err *err)
{
	char parent[PATH_MAX], last[PATH_MAX];
	size_t len;

	if (realpath(given, out))
		return 0;
	if (errno != ENOTCONN)
		return ramp_err_sys(err, errno, "mountpoint %s", given);
	snprintf(parent, sizeof(parent), "%s", given);
	snprintf(last, sizeof(last), "%s", given);
	if (!realpath(dirname(parent), out))
		return ramp_err_sys(err, errno, "mountpoint %s", given);
	len = strlen(out);
	snprintf(out + len, PATH_MAX - len, "%s%s", len > 1 ? "/" : "", basename(last));
	return 0;
}

static int find_exe(const char *given, char out[PATH_MAX], struct ramp_err *err)
{
	ssize_t len;

	if (given) {
		snprintf(out, PATH_MAX, "%s", given);
		return 0;
	}
	len = readlink("/proc/self/exe", out, PATH_MAX - 1);
	if (len < 0)
		return ramp_err_sys(err, errno, "/proc/self/exe");
	out[len] = 0;
	return 0;
}

int paths_find(const struct daemon_options *o, const struct statedir *dir, const char *exe,
	       struct mount_paths *p, struct ramp_err *err)
{
	int len = find_exe(exe, p->exe, err);

	if (len)
		return len;
	memcpy(p->state_dir, dir->path, sizeof(p->state_dir));
	len = find_mountpoint(o->mountpoint, p->mountpoint, err);
	if (len)
		return len;
	/* Every user's programs look for the socket in it, whatever umask this process was started
	   with. */
	if (mkdir(SESSION_DIR, 0755) == 0 ? chmod(SESSION_DIR, 0755) : errno != EEXIST)
		return ramp_err_sys(err, errno, "%s", SESSION_DIR);
	snprintf(p->session, sizeof(p->session), SESSION_DIR "/%.40s.%.16s.%08x", dir->config.name,
		 dir->node, wire_crc32c(dir->path, strlen(dir->path)));
	return 0;
}

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strcmp(dir, "/") == 0 ||
	       (strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

int paths_check(const struct mount_paths *p, struct ramp_err *err)
{
	char store[PATH_MAX + 8];

	snprintf(store, sizeof(store), "%s/store", p->state_dir);
	if (is_below(p->state_dir, p->mountpoint))
		return ramp_err_set(err, EINVAL, "mountpoint %s: it would hide the state directory",
				    p->mountpoint);
	if (is_below(p->mountpoint, store))
		return ramp_err_set(err, EINVAL, "mountpoint %s: that is where the store is",
				    p->mountpoint);
	return 0;
}

char **paths_own_argv(const struct mount_paths *p, char *role, int argc, char **argv)
{
	char **own = calloc((size_t)argc + 4, sizeof(*own));
	int n = 0;

	if (!own)
		return NULL;
	own[n++] = (char *)p->exe;
	own[n++] = role;
	for (int i = 1; i < argc; i++)
		own[n++] = argv[i];
	own[n - 2] = (char *)p->state_dir;
	own[n - 1] = (char *)p->mountpoint;
	return own;
}
