#include "daemon_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/statedir.h"
#include "daemon.h"
#include "keeper/inherited.h"
#include "keeper/protocol.h"
#include "mount/stand_in.h"
#include "options.h"
#include "paths.h"
#include "remembered.h"

static void open_log(const struct daemon_options *o)
{
	log_open("rampfs", o->log[0] ? strcmp(o->log, "syslog") == 0 : !o->foreground,
		 o->log_level);
}

int stand_in_main(const struct daemon_options *o)
{
	open_log(o);
	return stand_in_run();
}

int daemon_main(const struct daemon_options *o, int argc, char **argv)
{
	struct ramp_err err = {0};
	struct daemon_config config = {.options = o};
	struct statedir dir = {0};
	struct mount_paths paths;
	int rc;

	open_log(o);
	rc = keeper_inherited(&config.connection, &err);
	if (!rc) {
		config.living = remembered_living(o->state_dir, config.connection);
		rc = remembered_read(o->state_dir, config.living, &dir, &err);
	}
	if (!rc)
		rc = paths_find(o, &dir, argv[0], &paths, &err);
	if (!rc) {
		config.dir = &dir;
		config.mountpoint = paths.mountpoint;
		config.session_path = paths.session;
		config.adopt_argv = paths_own_argv(&paths, "--adopt", argc, argv);
		rc = config.adopt_argv ? daemon_run(&config, &err)
				       : ramp_err_sys(&err, ENOMEM, "the daemon");
		free((void *)config.adopt_argv);
	}
	statedir_free(&dir);
	if (rc) {
		log_error("%s", err.text);
		keeper_tell_failure(&err);
		return KEEPER_EXIT_FATAL;
	}
	return 0;
}
