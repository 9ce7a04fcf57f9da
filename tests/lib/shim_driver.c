#include "shim_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/session.h"
#include "fake_daemon.h"
#include "lib/run_suite.h"

static pid_t runner_pid;
char dir[64], file[96], errors[96];
char run_path[PATH_MAX] = RAMPFS_RUN, prog_path[PATH_MAX] = SHIM_PROG;
struct fake *fake;
bool own_namespace, elsewhere;
int stderr_fd = -1;
const char *wrapper;

static void prepare(void)
{
	snprintf(dir, sizeof(dir), "/tmp/rampfs-shim.%d.XXXXXX", runner_pid);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	chmod(dir, 0755);
	snprintf(file, sizeof(file), "%s/mnt/seg", dir);
	snprintf(errors, sizeof(errors), "%s/stderr", dir);
	fake = fake_start(dir);
}

static void clean_up(void)
{
	fake_stop(fake);
	unlink(errors);
	rmdir(dir);
}

/* Enters a user namespace in which only the user itself has a number. The process is made dumpable
   before: the right to write the namespace's map is lost with the exec of a file that it may not
   read. */
static void enter_own_namespace(uid_t uid)
{
	char line[32];
	int fd, len = snprintf(line, sizeof(line), "1000 %u 1", uid);

	if (prctl(PR_SET_DUMPABLE, 1) || unshare(CLONE_NEWUSER))
		_exit(124);
	fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, line, (size_t)len) != len)
		_exit(123);
	close(fd);
}

/* Keeps the file open and goes where it is not mounted. */
static void leave_with_file(void)
{
	char mount_path[96];
	int fd = open(file, O_RDWR);

	snprintf(mount_path, sizeof(mount_path), "%s/mnt", dir);
	if (fd < 0 || dup2(fd, HANDED_FD) < 0 || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || umount2(mount_path, MNT_DETACH))
		_exit(122);
}

struct program start_as(const char *scenario, uid_t uid)
{
	struct program p;
	int in[2], out[2], err;

	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	p.pid = fork();
	if (p.pid == 0) {
		err = stderr_fd;
		if (err < 0)
			err = open(errors, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(err, 2);
		alarm(60);
		if (uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid)))
			_exit(125);
		if (elsewhere)
			leave_with_file();
		if (own_namespace)
			enter_own_namespace(uid);
		if (wrapper)
			execl(wrapper, wrapper, run_path, prog_path, file, scenario, (char *)NULL);
		else
			execl(run_path, "rampfs-run", prog_path, file, scenario, (char *)NULL);
		_exit(126);
	}
	close(in[0]);
	close(out[1]);
	p.to = in[1];
	p.from = out[0];
	return p;
}

struct program start(const char *scenario)
{
	return start_as(scenario, 0);
}

/* Returns the text that the program and the shim wrote to stderr. */
const char *said(void)
{
	static char text[4096];
	int fd = open(errors, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

int count_said(const char *what)
{
	int n = 0;

	for (const char *at = said(); (at = strstr(at, what)) != NULL; at++)
		n++;
	return n;
}

void await(struct program *p, const char *where)
{
	char line[64];
	ssize_t n = read(p->from, line, sizeof(line) - 1);

	line[n > 0 ? n - 1 : 0] = '\0';
	if (n <= 0)
		ck_abort_msg("ended before \"%s\": %s", where, said());
	ck_assert_str_eq(line, where);
}

void go_on(struct program *p)
{
	ck_assert_int_eq(write(p->to, "\n", 1), 1);
}

void finish(struct program *p)
{
	int status;

	ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
	if (status)
		ck_abort_msg("status %d: %s", status, said());
	close(p->to);
	close(p->from);
}

/* Makes a copy where the build lies under a user's home (/root): uid 65534 must reach its
   programs. */
static int make_public(void)
{
	char command[4 * PATH_MAX];
	int status = 1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(setuid(65534) || access(RAMPFS_RUN, X_OK) ? 1 : 0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	if (status == 0)
		return 0;
	snprintf(command, sizeof(command),
		 "set -e; d=/tmp/rampfs-shim.%d.public; mkdir -p $d/bin $d/lib; "
		 "cp '" RAMPFS_RUN "' '" SHIM_PROG "' $d/bin; "
		 "cp \"$(dirname '" RAMPFS_RUN "')\"/../lib/*preload* $d/lib; chmod -R a+rX $d",
		 runner_pid);
	snprintf(run_path, sizeof(run_path), "/tmp/rampfs-shim.%d.public/bin/rampfs-run",
		 runner_pid);
	snprintf(prog_path, sizeof(prog_path), "/tmp/rampfs-shim.%d.public/bin/shim_prog",
		 runner_pid);
	return system(command);
}

/* Cleans up after tests that failed. */
static void sweep(void)
{
	char pattern[64], path[128];
	glob_t found;

	snprintf(path, sizeof(path), "rm -rf /tmp/rampfs-shim.%d.public", runner_pid);
	if (system(path))
		fprintf(stderr, "left behind: the copy of the programs\n");
	snprintf(pattern, sizeof(pattern), "/tmp/rampfs-shim.%d.*", runner_pid);
	if (glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		snprintf(path, sizeof(path), "%s/mnt", found.gl_pathv[i]);
		umount2(path, MNT_DETACH);
		rmdir(path);
		snprintf(path, sizeof(path), "%s/mnt.socket", found.gl_pathv[i]);
		unlink(path);
		snprintf(path, sizeof(path), SESSION_DIR "/%s",
			 strrchr(found.gl_pathv[i], '/') + 1);
		unlink(path);
		snprintf(path, sizeof(path), "%s/stderr", found.gl_pathv[i]);
		unlink(path);
		rmdir(found.gl_pathv[i]);
		snprintf(path, sizeof(path), "/dev/shm/%s", strrchr(found.gl_pathv[i], '/') + 1);
		unlink(path);
	}
	globfree(&found);
}

int driver_run(const char *name, TCase *tc)
{
	Suite *suite = suite_create(name);
	int failed;

	runner_pid = getpid();
	if (make_public()) {
		fprintf(stderr, "no copy of the programs that every user can reach\n");
		return EXIT_FAILURE;
	}
	signal(SIGPIPE, SIG_IGN);
	tcase_add_checked_fixture(tc, prepare, clean_up);
	tcase_set_timeout(tc, 90);
	suite_add_tcase(suite, tc);
	failed = run_suite(suite);
	sweep();
	return failed;
}
