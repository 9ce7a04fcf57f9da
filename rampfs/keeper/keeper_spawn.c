/*
 * Executing a daemon or a keeper with the descriptors that it inherits.
 */
#include "keeper_spawn.h"

#include <signal.h>
#include <spawn.h>

/* Returns 0 or an errno. */
static int add_descriptors(const int given[KEEPER_FDS], posix_spawn_file_actions_t *actions)
{
	int rc = 0;

	for (int i = 0; !rc && i < KEEPER_FDS; i++)
		rc = posix_spawn_file_actions_adddup2(actions, given[i], KEEPER_FD_FIRST + i);
	return rc ? rc : posix_spawn_file_actions_addclosefrom_np(actions, KEEPER_FD_LAST + 1);
}

int keeper_spawn(const int given[KEEPER_FDS], char *const *argv, char **env, short flags,
		 pid_t *pid)
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
		rc = posix_spawn(pid, argv[0], &actions, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}
