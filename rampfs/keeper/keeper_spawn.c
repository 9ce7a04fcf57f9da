/*
 * Executing a daemon or a keeper with the descriptors that it inherits.
 */
#include "keeper_spawn.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"

/* Returns 0 or an errno. */
static int add_descriptors(const int given[KEEPER_FDS], posix_spawn_file_actions_t *actions)
{
	int rc = 0;

	for (int i = 0; !rc && i < KEEPER_FDS; i++)
		rc = posix_spawn_file_actions_adddup2(actions, given[i], KEEPER_FD_FIRST + i);
	return rc ? rc : posix_spawn_file_actions_addclosefrom_np(actions, KEEPER_FD_LAST + 1);
}

static int spawn(const int given[KEEPER_FDS], const char *program, char *const *argv, char **env,
		 short flags, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int rc;

	posix_spawn_file_actions_init(&actions);
	posix_spawnattr_init(&attr);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr,
				 (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | flags));
	rc = add_descriptors(given, &actions);
	if (!rc)
		rc = posix_spawn(pid, program ? program : argv[0], &actions, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}

int keeper_spawn_self(const int given[KEEPER_FDS], char *const *argv, char **env, short flags,
		      pid_t *pid)
{
	return spawn(given, "/proc/self/exe", argv, env, flags, pid);
}

/* Returns true where it is the file that can't be executed, not the process that can't be made. */
static bool is_about_file(int rc)
{
	return rc && rc != -ENOMEM && rc != -EAGAIN && rc != -EMFILE && rc != -EBADF;
}

int keeper_spawn(const int given[KEEPER_FDS], char *const *argv, char **env, short flags,
		 pid_t *pid)
{
	int rc = spawn(given, NULL, argv, env, flags, pid);

	if (!is_about_file(rc))
		return rc;
	log_warn("%s: %s: executing the program as it was before (install it, and send SIGHUP)",
		 argv[0], strerror(-rc));
	return keeper_spawn_self(given, argv, env, flags, pid) ? rc : 0;
}
