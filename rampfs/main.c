/*
 * rampfs: options, and which of its processes this is.
 *
 * What the user starts becomes the keeper (in the background unless -f): it locks the state
 * directory, mounts, and executes this program again as the daemon (--daemon) for as long as the
 * mount stands. A daemon whose keeper has died executes it as --adopt, and every daemon has a
 * doorman
 * (--doorman, programs/doorman.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu_weight.h"
#include "base/log.h"
#include "base/output.h"
#include "base/session.h"
#include "base/statedir.h"
#include "base/wire.h"
#include "daemon.h"
#include "keeper/inherited.h"
#include "keeper/keeper.h"
#include "keeper/protocol.h"
#include "memory/store.h"
#include "options.h"
#include "programs/programs.h"

struct place {
	char state_dir[PATH_MAX], mountpoint[PATH_MAX], exe[PATH_MAX], session[PATH_MAX];
};

/* mount(8) hands on what its helper ends with, and has numbers of its own. */
static int exit_failed = 1, exit_usage = 2;

static int main_fail(const struct ramp_err *err)
{
	fprintf(stderr, "rampfs: %s\n", err->text);
	return exit_failed;
}

/* The absolute path of a mountpoint. A mount that is dead answers ENOTCONN for its own path, but
   not for its parent's. */
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

static int find_place(const struct daemon_options *o, const struct statedir *dir, struct place *p,
		      struct ramp_err *err)
{
	ssize_t len = readlink("/proc/self/exe", p->exe, sizeof(p->exe) - 1);

	if (len < 0)
		return ramp_err_sys(err, errno, "/proc/self/exe");
	p->exe[len] = 0;
	memcpy(p->state_dir, dir->path, sizeof(p->state_dir));
	len = find_mountpoint(o->mountpoint, p->mountpoint, err);
	if (len)
		return (int)len;
	/* Everybody's programs look for the socket in it, whatever umask we are started with. */
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

/* A daemon that has its own mount on the way to its files waits for itself. */
static int check_place(const struct place *p, struct ramp_err *err)
{
	char store[PATH_MAX + 8];

	snprintf(store, sizeof(store), "%s/store", p->state_dir);
	if (is_below(p->state_dir, p->mountpoint))
		return ramp_err_set(err, EINVAL, "mountpoint %s: it would hide the state directory",
				    p->mountpoint);
	if (is_below(p->mountpoint, store))
		return ramp_err_set(err, EINVAL, "mountpoint %s: that is the store's place",
				    p->mountpoint);
	return 0;
}

static bool log_is_file(const char *log)
{
	return strcmp(log, "stderr") != 0 && strcmp(log, "syslog") != 0;
}

/* The log of the keeper and the daemon: a file or /dev/null becomes their stderr. */
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

/*
 * The arguments that this program executes itself with: role, the options as they were given, and
 * absolute paths (getopt_long has put them last).
 */
static char **own_argv(const struct place *p, char *role, int argc, char **argv)
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

/* Leaves the terminal: the first process waits on the pipe until the mount answers. */
static int go_background(int *ready_fd, struct ramp_err *err)
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
 * What whoever starts us may use is no limit for a filesystem: a write beyond RLIMIT_FSIZE would end
 * each daemon in turn, and everybody would wait. Without CAP_SYS_RESOURCE the hard limit stays, and a
 * write beyond it is EFBIG.
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

static int run_keeper(const struct daemon_options *o, int argc, char **argv, bool adopt)
{
	struct ramp_err err = {0};
	struct keeper_config config = {.session_type = SOCK_SEQPACKET, .ready_fd = -1};
	struct statedir dir;
	struct place place;
	int rc;

	lift_limits();
	config.lock_fd = adopt ? KEEPER_FD_LOCK : -1;
	rc = statedir_read(o->state_dir, &dir, &err);
	if (!rc)
		rc = find_place(o, &dir, &place, &err);
	if (!rc && !adopt)
		rc = check_place(&place, &err);
	statedir_free(&dir);
	if (rc)
		return main_fail(&err);
	if (!adopt && !o->foreground)
		rc = go_background(&config.ready_fd, &err);
	if (!adopt)
		cpu_weight_session();
	if (!rc && !adopt) {
		/* The child's pid stands in the lock, so it is taken after the fork. */
		config.lock_fd = statedir_lock(place.state_dir, &err);
		rc = config.lock_fd < 0 ? config.lock_fd : 0;
	}
	if (!rc)
		rc = open_log(o, &err);
	if (!rc && !o->foreground && chdir("/") < 0)
		rc = ramp_err_sys(&err, errno, "/");
	if (!rc) {
		config.daemon_argv = own_argv(&place, "--daemon", argc, argv);
		rc = config.daemon_argv ? 0 : ramp_err_sys(&err, ENOMEM, "the daemon");
	}
	if (rc) {
		tell_parent(config.ready_fd, &err);
		return config.ready_fd < 0 ? main_fail(&err) : 1;
	}
	config.source = place.state_dir;
	config.check = check_configuration;
	config.mountpoint = place.mountpoint;
	config.mount_flags = o->mount_flags;
	config.session_path = place.session;
	if (o->log[0] && log_is_file(o->log))
		config.log_path = o->log;
	rc = adopt ? keeper_adopt(&config, &err) : keeper_run(&config, &err);
	free((void *)config.daemon_argv);
	if (rc && o->foreground)
		return main_fail(&err);
	if (rc)
		log_error("%s", err.text);
	return rc ? 1 : 0;
}

static int run_daemon(const struct daemon_options *o, int argc, char **argv)
{
	struct ramp_err err = {0};
	struct daemon_config config = {.options = o};
	struct statedir dir;
	struct place place;
	int rc;

	log_open("rampfs", o->log[0] ? strcmp(o->log, "syslog") == 0 : !o->foreground,
		 o->log_level);
	rc = statedir_read(o->state_dir, &dir, &err);
	if (!rc)
		rc = find_place(o, &dir, &place, &err);
	statedir_free(&dir);
	if (!rc) {
		config.state_dir = place.state_dir;
		config.mountpoint = place.mountpoint;
		config.session_path = place.session;
		config.adopt_argv = own_argv(&place, "--adopt", argc, argv);
		rc = config.adopt_argv ? daemon_run(&config, &err)
				       : ramp_err_sys(&err, ENOMEM, "the daemon");
		free((void *)config.adopt_argv);
	}
	if (rc) {
		log_error("%s", err.text);
		keeper_tell_failure(&err);
		return KEEPER_EXIT_FATAL;
	}
	return 0;
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
	static const char *const roles[] = {"--daemon", "--adopt"};

	for (size_t i = 0; *argc > 1 && i < 2; i++)
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
	programs_doorman(argc, argv);
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
	if (geteuid() != 0) {
		fputs("rampfs: mounting needs root\n", stderr);
		return exit_failed;
	}
	if (strcmp(role, "--daemon") == 0)
		return run_daemon(&o, argc, argv);
	if (o.fake)
		return 0;
	return run_keeper(&o, argc, argv, strcmp(role, "--adopt") == 0);
}
