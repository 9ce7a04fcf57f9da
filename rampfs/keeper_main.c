#include "keeper_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cpu_weight.h"
#include "base/log.h"
#include "base/statedir.h"
#include "keeper/keeper.h"
#include "keeper/protocol.h"
#include "options.h"
#include "paths.h"
#include "remembered.h"

static int keeper_fail(const struct ramp_err *err, int exit_failed)
{
	fprintf(stderr, "rampfs: %s\n", err->text);
	return exit_failed;
}

static bool log_is_file(const char *log)
{
	return strcmp(log, "stderr") != 0 && strcmp(log, "syslog") != 0;
}

/* Opens the log of the keeper and the daemon: a file or /dev/null becomes their stderr. */
static int open_log(const struct daemon_options *o, struct ramp_err *err)
{
	const char *log = o->log[0] ? o->log : o->foreground ? "stderr" : "syslog";
	int fd;

	if (log_is_file(log)) {
		fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
		if (fd < 0)
			return ramp_err_sys(err, errno, "log file %s", log);
		if (dup2(fd, STDERR_FILENO) < 0)
			return ramp_err_sys(err, errno, "log file %s", log);
		close(fd);
	}
	log_open("rampfs", strcmp(log, "syslog") == 0, o->log_level);
	return 0;
}

/* Leaves the terminal: the first process waits on the pipe until the mount answers. */
static int go_background(int *ready_fd, int exit_failed, struct ramp_err *err)
{
	char text[RAMP_ERR_TEXT_BYTES + 2] = "";
	int pipefd[2], null;
	ssize_t len;
	pid_t pid;

	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return ramp_err_sys(err, errno, "pipe");
	pid = fork();
	if (pid < 0)
		return ramp_err_sys(err, errno, "fork");
	if (pid > 0) {
		close(pipefd[1]);
		len = read(pipefd[0], text, sizeof(text) - 1);
		text[len > 0 ? len : 0] = 0;
		text[strcspn(text, "\n")] = 0;
		if (len > 0 && !text[0])
			_exit(0);
		fprintf(stderr, "rampfs: %s\n",
			text[0] ? text : "ended before the mount answered (see its log)");
		_exit(exit_failed);
	}
	close(pipefd[0]);
	*ready_fd = pipefd[1];
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0)
		return ramp_err_sys(err, errno, "/dev/null");
	close(null);
	return 0;
}

static void tell_parent(int ready_fd, const struct ramp_err *err)
{
	char line[RAMP_ERR_TEXT_BYTES + 2];
	int len = snprintf(line, sizeof(line), "%s\n", err->text);

	if (ready_fd >= 0 && write(ready_fd, line, (size_t)len) < 0)
		log_error("%s", err->text);
}

static int check_configuration(const struct keeper_config *config, struct ramp_err *err)
{
	struct statedir dir;
	int rc = statedir_read(config->source, &dir, err);

	statedir_free(&dir);
	return rc;
}

/*
 * Lifts the limits of the process that starts this one: they are none for a filesystem. A write
 * beyond RLIMIT_FSIZE would end each daemon in turn, and every program would wait. Without
 * CAP_SYS_RESOURCE the hard limit stays, and a write beyond it is EFBIG.
 */
static void lift_limits(void)
{
	static const __rlimit_resource_t which[] = {RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_AS,
						    RLIMIT_DATA};
	const struct rlimit none = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	struct rlimit limit;

	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
		if (setrlimit(which[i], &none) == 0 || getrlimit(which[i], &limit))
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit(which[i], &limit);
	}
	signal(SIGXFSZ, SIG_IGN); /* a log that gets long */
}

static void warn_user(const char *line)
{
	fprintf(stderr, "rampfs: warning: %s\n", line);
}

static void warn_log(const char *line)
{
	log_warn("%s", line);
}

/* Says what mkfs.rampfs has said, too: the file may come from another machine. */
static void say_doubts(const struct config_node *own, void (*say)(const char *line))
{
	if (own->address[0])
		config_doubts(own, true, say);
}

static void free_argvs(struct keeper_config *config)
{
	free((void *)config->daemon_argv);
	free((void *)config->stand_in_argv);
}

static int make_argvs(struct keeper_config *config, const struct mount_paths *paths, int argc,
		      char **argv, struct ramp_err *err)
{
	config->daemon_argv = paths_own_argv(paths, "--daemon", argc, argv);
	config->stand_in_argv = paths_own_argv(paths, "--stand-in", argc, argv);
	if (config->daemon_argv && config->stand_in_argv)
		return 0;
	free_argvs(config);
	return ramp_err_sys(err, ENOMEM, "the daemon");
}

int keeper_main(const struct daemon_options *o, int argc, char **argv, bool adopt, int exit_failed)
{
	struct ramp_err err = {0};
	struct keeper_config config = {.session_type = SOCK_SEQPACKET, .ready_fd = -1};
	struct statedir dir;
	struct mount_paths paths;
	const struct config_node *named;
	struct config_node own = {0};
	int rc;

	lift_limits();
	config.lock_fd = adopt ? KEEPER_FD_LOCK : -1;
	rc = remembered_read(o->state_dir, adopt, &dir, &err);
	if (!rc)
		rc = paths_find(o, &dir, adopt ? argv[0] : NULL, &paths, &err);
	if (!rc && !adopt) {
		rc = paths_check(&paths, &err);
		named = config_find(&dir.config, dir.node);
		own = named ? *named : own;
	}
	statedir_free(&dir);
	if (rc)
		return keeper_fail(&err, exit_failed);
	if (!o->foreground)
		say_doubts(&own, warn_user);
	if (!adopt && !o->foreground)
		rc = go_background(&config.ready_fd, exit_failed, &err);
	if (!adopt)
		cpu_weight_session();
	if (!rc && !adopt) {
		/* The lock holds the child's pid, so it is taken after the fork. */
		config.lock_fd = statedir_lock(paths.state_dir, &err);
		rc = config.lock_fd < 0 ? config.lock_fd : 0;
	}
	if (!rc)
		rc = open_log(o, &err);
	if (!rc)
		say_doubts(&own, warn_log);
	if (!rc && !o->foreground && chdir("/") < 0)
		rc = ramp_err_sys(&err, errno, "/");
	if (!rc)
		rc = make_argvs(&config, &paths, argc, argv, &err);
	if (rc) {
		tell_parent(config.ready_fd, &err);
		return config.ready_fd < 0 ? keeper_fail(&err, exit_failed) : 1;
	}
	config.source = paths.state_dir;
	config.check = check_configuration;
	config.mountpoint = paths.mountpoint;
	config.mount_flags = o->mount_flags;
	config.session_path = paths.session;
	if (o->log[0] && log_is_file(o->log))
		config.log_path = o->log;
	rc = adopt ? keeper_adopt(&config, &err) : keeper_run(&config, &err);
	free_argvs(&config);
	if (rc && o->foreground)
		return keeper_fail(&err, exit_failed);
	if (rc)
		log_error("%s", err.text);
	return rc ? 1 : 0;
}
