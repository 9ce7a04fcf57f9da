/*
 * rampfs: which of its processes this is.
 *
 * The process that the user starts becomes the keeper (in the background unless -f): it locks the
 * state directory, mounts, and executes this program again as the daemon (--daemon) for as long as
 * the mount exists. Where daemons end before they serve, it executes this program as --stand-in,
 * which answers requests until the next try (mount/stand_in.c). A daemon that has lost its keeper
 * executes this program as --adopt. Every daemon has a broker (--broker, programs/client/broker.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/output.h"
#include "base/statedir.h"
#include "daemon_main.h"
#include "keeper_main.h"
#include "kernel_needs.h"
#include "memory/store.h"
#include "options.h"
#include "programs/programs.h"

/* mount(8) passes on its helper's exit status, and has numbers of its own. */
static int exit_failed = 1, exit_usage = 2;

static int main_fail(const struct ramp_err *err)
{
	fprintf(stderr, "rampfs: %s\n", err->text);
	return exit_failed;
}

static int run_destroy(const struct daemon_options *o)
{
	struct ramp_err err = {0};
	struct statedir dir;
	int lock, rc;

	rc = statedir_read(o->state_dir, &dir, &err);
	if (rc) {
		statedir_free(&dir);
		return main_fail(&err);
	}
	lock = statedir_lock(dir.path, &err);
	rc = lock < 0 ? lock : store_destroy(dir.path, o->force, &err);
	if (lock >= 0)
		close(lock);
	statedir_free(&dir);
	return rc ? main_fail(&err) : 0;
}

/* Takes the role out of argv, where this program has executed itself. */
static const char *take_role(int *argc, char **argv)
{
	static const char *const roles[] = {"--daemon", "--adopt", "--stand-in"};

	for (size_t i = 0; *argc > 1 && i < sizeof(roles) / sizeof(roles[0]); i++)
		if (strcmp(argv[1], roles[i]) == 0) {
			memmove(argv + 1, argv + 2, (size_t)(*argc - 1) * sizeof(*argv));
			--*argc;
			return roles[i];
		}
	return "";
}

int main(int argc, char **argv)
{
	struct daemon_options o;
	struct ramp_err err = {0};
	const char *role;

	output_begin();
	programs_broker(argc, argv);
	role = take_role(&argc, argv);
	if (argc > 0 && !role[0] && options_helper(argv[0])) {
		exit_usage = 1;
		exit_failed = 32;
	}
	if (options_parse(argc, argv, role[0], &o, &err)) {
		fprintf(stderr, "rampfs: %s\nTry 'rampfs --help'.\n", err.text);
		return exit_usage;
	}
	switch (o.mode) {
	case MODE_HELP:
		fputs(options_usage, stdout);
		return output_end("rampfs");
	case MODE_OPTIONS_HELP:
		fputs(options_mount_usage, stdout);
		return output_end("rampfs");
	case MODE_VERSION:
		puts("rampfs " RAMPFS_VERSION);
		return output_end("rampfs");
	case MODE_DESTROY:
		return run_destroy(&o);
	case MODE_MOUNT:
		break;
	}
	if (!role[0] && kernel_needs(&err))
		return main_fail(&err);
	if (geteuid() != 0) {
		fputs("rampfs: mounting needs root\n", stderr);
		return exit_failed;
	}
	if (strcmp(role, "--daemon") == 0)
		return daemon_main(&o, argc, argv);
	if (strcmp(role, "--stand-in") == 0)
		return stand_in_main(&o);
	if (o.fake)
		return 0;
	return keeper_main(&o, argc, argv, strcmp(role, "--adopt") == 0, exit_failed);
}
