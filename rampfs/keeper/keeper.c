/*
 * The keeper: holds /dev/fuse, the listening session socket and what daemons leave to each other
 * (the shelf, mount.h), and keeps a daemon running.
 *
 * It mounts, executes the daemon, and executes it again when it dies: at once, or after a pause
 * that grows while daemons die as soon as they start. It ends when the mount is gone and the daemon
 * has exited. All that it waits for is one poll(2); it allocates nothing after its start.
 *
 * How it fails: a daemon that gives up before any has ever served ends the keeper with an error. A
 * daemon that does not end when told to is killed after END_MS. Before Linux 6.9 requests that a
 * dead daemon had read can't be had again: the connection is dropped and the mount made anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/kernel.h"
#include "base/log.h"
#include "keeper.h"
#include "mount/mount.h"
#include "sd_notify.h"

#define FSTYPE		"fuse.rampfs"
#define HIGH_FD		16    /* our descriptors stand above those that a daemon is given */
#define END_MS		10000 /* to end when told to */
#define QUICK_MS	20    /* a daemon that served for less has died at once */
#define QUICK_FREE	5     /* so many quick deaths cost no pause */
#define PAUSE_FIRST_MS	10
#define PAUSE_MAX_MS	5000
#define STARTS_UNSERVED 5   /* killed so often before the first ever served: give up */
#define RESEND_SINCE	609 /* Linux 6.9 */

struct keeper {
	const struct keeper_config *config;
	int fuse, sessions, lock, control, signals, shelf[2];
	pid_t pid;
	int pidfd;			   /* -1: no daemon runs */
	bool child;			   /* not adopted: has an exit status */
	bool served;			   /* this daemon or a former one */
	bool ending;			   /* SIGTERM */
	bool gone;			   /* the daemon said that the mount is gone */
	char failure[RAMP_ERR_TEXT_BYTES]; /* why the daemon did not come to serve, as it said */
	unsigned quick, starts;
	uint64_t serving_since_ms;	  /* 0: this daemon does not serve yet */
	uint64_t start_at_ms, kill_at_ms; /* 0: not */
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- mounts --------------------------------------------------------------------------------- */

/* The kernel writes a # in a source as \043, and getmntent(3) leaves it so. */
static bool is_source(const char *listed, const char *source)
{
	for (; *source; source++) {
		if (*source == '#' && strncmp(listed, "\\043", 4) == 0)
			listed += 4;
		else if (*listed++ != *source)
			return false;
	}
	return !*listed;
}

/* True where `dir` is mounted and is ours by type and source; *other: something else is there. */
static bool our_mount(const char *source, const char *dir, bool *other)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *e;
	bool ours = false;

	*other = false;
	while (mounts && (e = getmntent(mounts))) {
		if (strcmp(e->mnt_dir, dir) != 0)
			continue;
		/* The last one that is listed covers the others. */
		ours = strcmp(e->mnt_type, FSTYPE) == 0 && is_source(e->mnt_fsname, source);
		*other = !ours && strcmp(e->mnt_type, FSTYPE) == 0;
	}
	if (mounts)
		endmntent(mounts);
	return ours;
}

/* A mount of our source anywhere: its mountpoint in `dir`. */
static bool find_ours(const char *source, char *dir, size_t cap)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *e;
	bool found = false;

	while (mounts && (e = getmntent(mounts))) {
		if (strcmp(e->mnt_type, FSTYPE) != 0 || !is_source(e->mnt_fsname, source) ||
		    strlen(e->mnt_dir) >= cap)
			continue;
		strcpy(dir, e->mnt_dir);
		found = true;
	}
	if (mounts)
		endmntent(mounts);
	return found;
}

static int detach(const char *dir, struct ramp_err *err)
{
	log_warn("detaching the dead mount %s", dir);
	if (umount2(dir, MNT_DETACH))
		return ramp_err_sys(err, errno, "detaching the dead mount %s", dir);
	return 0;
}

/* Whoever locked the state directory knows that nobody serves a mount of it. */
static int detach_dead(const struct keeper_config *config, struct ramp_err *err)
{
	char dir[4096];
	struct statfs fs;
	bool other;
	int rc;

	while (find_ours(config->source, dir, sizeof(dir))) {
		rc = detach(dir, err);
		if (rc)
			return rc;
	}
	while (our_mount(config->source, config->mountpoint, &other) || other) {
		if (statfs(config->mountpoint, &fs) == 0 || errno != ENOTCONN)
			return ramp_err_set(err, EBUSY, "another rampfs is mounted at %s",
					    config->mountpoint);
		rc = detach(config->mountpoint, err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Moves a descriptor up, out of the way of those that a daemon is given; closes it in any case. */
static int move_high(int fd, int *high)
{
	int rc;

	*high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
	rc = *high < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int make_mount(struct keeper *k, struct ramp_err *err)
{
	char options[128], connection[32];
	int rc, fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return ramp_err_sys(err, errno, "/dev/fuse");
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fd);
	if (mount(k->config->source, k->config->mountpoint, FSTYPE,
		  MS_NOSUID | MS_NODEV | k->config->mount_flags, options)) {
		int code = errno;

		close(fd);
		return ramp_err_sys(err, code, "mounting %s", k->config->mountpoint);
	}
	rc = move_high(fd, &k->fuse);
	if (rc)
		return ramp_err_sys(err, -rc, "/dev/fuse");
	snprintf(connection, sizeof(connection), "%016llx", (unsigned long long)ramp_random64());
	setenv(KEEPER_ENV_CONNECTION, connection, 1);
	return 0;
}

static void drop_mount(struct keeper *k)
{
	bool other;

	if (our_mount(k->config->source, k->config->mountpoint, &other) &&
	    umount2(k->config->mountpoint, 0) && errno == EBUSY)
		umount2(k->config->mountpoint, MNT_DETACH);
}

/* ---- what is held --------------------------------------------------------------------------- */

static void set_oom(pid_t pid, const char *score)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, score, strlen(score)) < 0)
		log_debug("%s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static int listen_sessions(struct keeper *k, struct ramp_err *err)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int rc, fd;

	if (strlen(k->config->session_path) >= sizeof(addr.sun_path))
		return ramp_err_set(err, ENAMETOOLONG, "session socket %s: more than %zu bytes",
				    k->config->session_path, sizeof(addr.sun_path) - 1);
	strcpy(addr.sun_path, k->config->session_path);
	fd = socket(AF_UNIX, k->config->session_type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return ramp_err_sys(err, errno, "session socket");
	kernel_refuse_fds(fd); /* before anybody connects; where that fails the daemon says so */
	unlink(addr.sun_path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) || chmod(addr.sun_path, 0666) ||
	    listen(fd, 128)) {
		int code = errno;

		close(fd);
		return ramp_err_sys(err, code, "session socket %s", addr.sun_path);
	}
	rc = move_high(fd, &k->sessions);
	return rc ? ramp_err_sys(err, -rc, "session socket %s", addr.sun_path) : 0;
}

static int make_shelf(struct keeper *k, struct ramp_err *err)
{
	int pair[2], rc, rc_other;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return ramp_err_sys(err, errno, "a pair of sockets");
	rc = move_high(pair[0], &k->shelf[0]);
	rc_other = move_high(pair[1], &k->shelf[1]);
	rc = rc ? rc : rc_other;
	return rc ? ramp_err_sys(err, -rc, "a pair of sockets") : 0;
}

static int hold(struct keeper *k, struct ramp_err *err)
{
	sigset_t set;
	int rc, fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return ramp_err_sys(err, errno, "signalfd");
	rc = move_high(fd, &k->signals);
	if (rc)
		return ramp_err_sys(err, -rc, "signalfd");
	set_oom(getpid(), KEEPER_OOM_KEEPER);
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		log_debug("the keeper's memory is not locked: %s", strerror(errno));
	return 0;
}

/* ---- the daemon ----------------------------------------------------------------------------- */

extern char **environ;

/* What the daemon is given, each where it looks for it. An errno. */
static int add_descriptors(const struct keeper *k, int control, posix_spawn_file_actions_t *actions)
{
	const int given[][2] = {{k->fuse, KEEPER_FD_FUSE},	   {control, KEEPER_FD_CONTROL},
				{k->sessions, KEEPER_FD_SESSIONS}, {k->lock, KEEPER_FD_LOCK},
				{k->shelf[0], KEEPER_FD_SHELF},	   {k->shelf[1], KEEPER_FD_LAST}};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(given) / sizeof(given[0]); i++)
		rc = posix_spawn_file_actions_adddup2(actions, given[i][0], given[i][1]);
	return rc ? rc : posix_spawn_file_actions_addclosefrom_np(actions, KEEPER_FD_LAST + 1);
}

static int spawn_daemon(struct keeper *k, int control)
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
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	rc = add_descriptors(k, control, &actions);
	if (!rc)
		rc = posix_spawn(&k->pid, k->config->daemon_argv[0], &actions, &attr,
				 k->config->daemon_argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}

static int watch_daemon(struct keeper *k, bool child)
{
	k->pidfd = (int)syscall(SYS_pidfd_open, k->pid, 0);
	k->child = child;
	k->serving_since_ms = 0;
	k->kill_at_ms = 0;
	return k->pidfd < 0 ? -errno : 0;
}

/* Our end of the connection to the next daemon is k->control, its own *theirs. */
static int make_control(struct keeper *k, int *theirs)
{
	int pair[2], rc, rc_theirs;

	if (k->control >= 0)
		close(k->control);
	k->control = *theirs = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = move_high(pair[0], &k->control);
	rc_theirs = move_high(pair[1], theirs);
	return rc ? rc : rc_theirs;
}

/* One that can't be watched must not run: another would be started beside it. */
static int spawn_watched(struct keeper *k, int control)
{
	int rc = spawn_daemon(k, control);

	if (rc)
		return rc;
	rc = watch_daemon(k, true);
	if (rc) {
		kill(k->pid, SIGKILL);
		waitpid(k->pid, NULL, 0);
	}
	return rc;
}

/* What can't be started comes later, where there was one before; else that is an error. */
static int start_daemon(struct keeper *k, struct ramp_err *err)
{
	int control, rc;

	k->start_at_ms = 0;
	k->starts++;
	rc = make_control(k, &control);
	if (!rc)
		rc = spawn_watched(k, control);
	if (control >= 0)
		close(control);
	if (!rc) {
		set_oom(k->pid, KEEPER_OOM_DAEMON);
		return 0;
	}
	rc = ramp_err_sys(err, -rc, "starting the daemon %s", k->config->daemon_argv[0]);
	if (!k->served)
		return rc;
	log_error("%s", err->text);
	k->start_at_ms = now_ms() + PAUSE_MAX_MS;
	return 0;
}

/* The pause before the next start. */
static uint64_t pause_ms(struct keeper *k)
{
	uint64_t pause = PAUSE_FIRST_MS;

	if (k->serving_since_ms && now_ms() - k->serving_since_ms >= QUICK_MS) {
		k->quick = 0;
		return 0;
	}
	if (++k->quick <= QUICK_FREE)
		return 0;
	for (unsigned i = QUICK_FREE + 1; i < k->quick && pause < PAUSE_MAX_MS; i++)
		pause *= 2;
	return pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

/* No RESEND in this kernel: what the dead daemon had read would hang for ever. */
static int mount_anew(struct keeper *k, struct ramp_err *err)
{
	log_warn("Linux before 6.9 can't send requests again: mounting anew");
	umount2(k->config->mountpoint, MNT_DETACH);
	close(k->fuse);
	return make_mount(k, err);
}

/* 0: go on; else the keeper ends with that. */
static int daemon_died(struct keeper *k, struct ramp_err *err)
{
	int status = 0;
	uint64_t pause;

	if (k->child)
		waitpid(k->pid, &status, 0);
	close(k->pidfd);
	k->pidfd = -1;
	if (k->ending || k->gone)
		return 0;
	if (!k->served &&
	    ((WIFEXITED(status) && WEXITSTATUS(status) != 0) || k->starts >= STARTS_UNSERVED))
		return ramp_err_set(err, EIO, "%s",
				    k->failure[0] ? k->failure
						  : "the daemon does not start (see its log)");
	if (k->child && WIFSIGNALED(status))
		log_warn("the daemon was killed by signal %d; starting it again", WTERMSIG(status));
	else
		log_info("the daemon has ended; starting it again");
	if (kernel_version() < RESEND_SINCE) {
		int rc = mount_anew(k, err);

		if (rc)
			return rc;
	}
	pause = pause_ms(k);
	if (pause)
		log_warn("%u daemons have died at once: the next in %llu ms", k->quick,
			 (unsigned long long)pause);
	k->start_at_ms = now_ms() + pause;
	return 0;
}

static void say(struct keeper *k, char what)
{
	if (k->control >= 0 && send(k->control, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
		log_debug("the daemon is not told '%c': %s", what, strerror(errno));
}

static void tell_ready(const struct keeper_config *config, const char *text)
{
	if (config->ready_fd < 0)
		return;
	if (dprintf(config->ready_fd, "%s\n", text) < 0)
		log_debug("nobody waits for the mount");
	close(config->ready_fd);
}

static void on_control(struct keeper *k)
{
	char message[1 + RAMP_ERR_TEXT_BYTES] = "", what;
	ssize_t n = recv(k->control, message, sizeof(message) - 1, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		/* It may have said what we would wait for. */
		log_warn("the daemon can't be heard: %s; starting another", strerror(errno));
		syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
	}
	what = message[0];
	if (n <= 0) {
		close(k->control);
		k->control = -1;
	} else if (what == KEEPER_SAY_SERVING) {
		k->serving_since_ms = now_ms();
		if (!k->served && k->child)
			tell_ready(k->config, "");
		notify_systemd("READY=1\nSTATUS=serving");
		k->served = true;
	} else if (what == KEEPER_SAY_FAILED) {
		snprintf(k->failure, sizeof(k->failure), "%s", message + 1);
	} else if (what == KEEPER_SAY_GONE) {
		k->gone = true;
		notify_systemd("STOPPING=1\nSTATUS=unmounted; finishing what is on its way");
	}
}

/* Where the log was moved away: what the next daemon inherits is the new file. */
static void reopen_log(const struct keeper *k)
{
	int fd;

	if (!k->config->log_path)
		return;
	fd = open(k->config->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		log_error("log file %s: %s", k->config->log_path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static void on_signal(struct keeper *k)
{
	struct signalfd_siginfo si;
	struct ramp_err err = {0};

	if (read(k->signals, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return;
	if (si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT) {
		k->ending = true;
		notify_systemd("STOPPING=1");
		say(k, KEEPER_SAY_END);
		drop_mount(k);
		k->kill_at_ms = now_ms() + END_MS;
	} else if (si.ssi_signo == SIGHUP && !k->ending && !k->gone) {
		notify_reloading();
		reopen_log(k);
		if (k->config->check(k->config, &err)) {
			log_error("the daemon stays as it is: %s", err.text);
			notify_systemd("READY=1\nSTATUS=serving");
			return;
		}
		say(k, KEEPER_SAY_UPGRADE);
		k->kill_at_ms = now_ms() + END_MS;
	}
}

static int next_timeout(const struct keeper *k)
{
	uint64_t at = k->pidfd < 0 ? k->start_at_ms : k->kill_at_ms, now = now_ms();

	if (!at)
		return -1;
	return at <= now ? 0 : (int)(at - now);
}

/* Ends when the mount is gone, or with an error before it ever served. */
static int keep(struct keeper *k, struct ramp_err *err)
{
	while (k->pidfd >= 0 || !(k->ending || k->gone)) {
		struct pollfd p[3] = {{.fd = k->pidfd, .events = POLLIN},
				      {.fd = k->control, .events = POLLIN},
				      {.fd = k->signals, .events = POLLIN}};
		int rc;

		if (poll(p, 3, next_timeout(k)) < 0)
			continue;
		if (p[2].revents)
			on_signal(k);
		if (p[1].revents)
			on_control(k);
		if (p[0].revents) {
			rc = daemon_died(k, err);
			if (rc)
				return rc;
		}
		if (k->pidfd >= 0 && k->kill_at_ms && now_ms() >= k->kill_at_ms) {
			log_warn("the daemon does not end: killing it");
			syscall(SYS_pidfd_send_signal, k->pidfd, SIGKILL, NULL, 0);
			k->kill_at_ms = 0;
		}
		if (k->pidfd < 0 && k->start_at_ms && now_ms() >= k->start_at_ms && !k->ending &&
		    !k->gone) {
			rc = start_daemon(k, err);
			if (rc)
				return rc;
		}
	}
	return 0;
}

static void let_go(struct keeper *k)
{
	drop_mount(k);
	if (k->sessions >= 0)
		unlink(k->config->session_path);
	if (k->control >= 0)
		close(k->control);
	if (k->sessions >= 0)
		close(k->sessions);
	if (k->fuse >= 0)
		close(k->fuse);
	if (k->signals >= 0)
		close(k->signals);
	for (int i = 0; i < 2; i++)
		if (k->shelf[i] >= 0)
			close(k->shelf[i]);
}

int keeper_run(const struct keeper_config *config, struct ramp_err *err)
{
	struct keeper k = {.config = config,
			   .fuse = -1,
			   .sessions = -1,
			   .control = -1,
			   .signals = -1,
			   .shelf = {-1, -1},
			   .pidfd = -1};
	int rc;

	unsetenv(KEEPER_ENV_ADOPT);
	k.lock = fcntl(config->lock_fd, F_DUPFD_CLOEXEC, HIGH_FD);
	rc = k.lock < 0 ? ramp_err_sys(err, errno, "the lock's descriptor") : hold(&k, err);
	if (!rc)
		rc = detach_dead(config, err);
	if (!rc)
		rc = make_shelf(&k, err);
	if (!rc)
		rc = listen_sessions(&k, err);
	if (!rc)
		rc = make_mount(&k, err);
	if (!rc)
		rc = start_daemon(&k, err);
	if (!rc)
		rc = keep(&k, err);
	let_go(&k);
	if (k.lock >= 0)
		close(k.lock);
	if (rc)
		tell_ready(config, err ? err->text : "");
	return rc;
}

/* What we find at its place moves up, so that the next daemon's find theirs free. */
static int take(int fd)
{
	int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);

	if (high >= 0)
		close(fd);
	return high;
}

/* Both, or neither: a daemon of an older version has none. */
static int take_shelf(struct keeper *k)
{
	const int at[2] = {KEEPER_FD_SHELF, KEEPER_FD_LAST};

	for (int i = 0; i < 2; i++) {
		k->shelf[i] = take(at[i]);
		if (k->shelf[i] < 0 && errno != EBADF)
			return -errno;
	}
	if (k->shelf[0] >= 0 && k->shelf[1] >= 0)
		return 0;
	for (int i = 0; i < 2; i++) {
		if (k->shelf[i] >= 0)
			close(k->shelf[i]);
		k->shelf[i] = -1;
	}
	return 0;
}

/* systemd's main process was the dead keeper. */
static void tell_main_pid(void)
{
	char state[64];

	snprintf(state, sizeof(state), "MAINPID=%d\nREADY=1\nSTATUS=serving", (int)getpid());
	notify_systemd(state);
}

/* The lock's file says whom to tell that the node is to end. Empty lines cover what a longer number
   leaves: who reads it meanwhile, or where it could not be cut, would find two. */
static void sign_lock(int lock)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", (int)getpid());

	memset(text + len, '\n', sizeof(text) - (size_t)len);
	if (pwrite(lock, text, sizeof(text), 0) != (ssize_t)sizeof(text))
		log_warn("the lock's file names a keeper that has died: %s", strerror(errno));
}

/*
 * The daemon's child leaves its place to a child of its own, which is init's when it has ended:
 * systemd waits for the end of a main process only where that is its child (elsewhere it kills the
 * rest of the unit as soon as it has told it to end, and the mount stays, dead).
 */
static int become_inits_child(struct ramp_err *err)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return ramp_err_sys(err, errno, "fork");
	if (pid > 0)
		_exit(0);
	while (getppid() == parent)
		sched_yield();
	return 0;
}

int keeper_adopt(const struct keeper_config *config, struct ramp_err *err)
{
	const char *pid = getenv(KEEPER_ENV_ADOPT);
	struct keeper k = {
		.config = config, .signals = -1, .shelf = {-1, -1}, .pidfd = -1, .served = true};
	int rc;

	if (!pid || !getenv(KEEPER_ENV_CONNECTION))
		return ramp_err_set(err, EINVAL, "nobody asks to be adopted");
	k.pid = (pid_t)atol(pid);
	unsetenv(KEEPER_ENV_ADOPT);
	k.fuse = take(KEEPER_FD_FUSE);
	k.control = take(KEEPER_FD_CONTROL);
	k.sessions = take(KEEPER_FD_SESSIONS);
	k.lock = take(KEEPER_FD_LOCK);
	rc = take_shelf(&k);
	if (rc || k.fuse < 0 || k.control < 0 || k.sessions < 0 || k.lock < 0)
		return ramp_err_set(err, EBADF, "a descriptor of the daemon's is missing");
	rc = become_inits_child(err);
	if (!rc && k.shelf[0] < 0)
		rc = make_shelf(&k, err);
	if (!rc)
		rc = hold(&k, err);
	if (rc)
		return rc; /* the daemon sees us hang up and starts another: the mount stays */
	rc = watch_daemon(&k, false);
	if (rc && rc != -ESRCH)
		return ramp_err_sys(err, -rc, "watching the daemon");
	if (rc) /* it has died meanwhile: start another */
		k.start_at_ms = now_ms();
	sign_lock(k.lock);
	log_info("adopted the daemon, process %d", (int)k.pid);
	tell_main_pid();
	rc = keep(&k, err);
	let_go(&k);
	close(k.lock);
	return rc;
}

/* Both places are free. */
static int make_own_shelf(void)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	for (int i = 0; i < 2; i++) {
		int high = fcntl(pair[i], F_DUPFD_CLOEXEC, HIGH_FD);

		close(pair[i]);
		pair[i] = high;
	}
	rc = pair[0] < 0 || pair[1] < 0 || dup2(pair[0], KEEPER_FD_SHELF) < 0 ||
			     dup2(pair[1], KEEPER_FD_LAST) < 0
		     ? -errno
		     : 0;
	for (int i = 0; i < 2; i++)
		if (pair[i] >= 0)
			close(pair[i]);
	return rc;
}

int keeper_inherited(uint64_t *connection, struct ramp_err *err)
{
	const char *text = getenv(KEEPER_ENV_CONNECTION);
	char *end = NULL;
	int rc = 0;

	if (text)
		*connection = strtoull(text, &end, 16);
	if (!text || !*text || *end || !*connection)
		return ramp_err_set(err, EINVAL,
				    "the daemon is started by rampfs itself, not by hand");
	/* A keeper of an older version has none: what is put on this one, nobody finds. */
	if (fcntl(KEEPER_FD_LAST, F_GETFD) < 0)
		rc = make_own_shelf();
	for (int fd = KEEPER_FD_FUSE; !rc && fd <= KEEPER_FD_LAST; fd++)
		rc = fcntl(fd, F_SETFD, FD_CLOEXEC) ? -errno : 0;
	return rc ? ramp_err_sys(err, -rc, "descriptors from the keeper") : 0;
}
