/*
 * One process, as /proc shows it: its pid and age, its state, and its threads.
 *
 * How it fails: for a process that has ended, the result is -ESRCH, or 0 where a number is asked
 * for. Nothing here depends on clients.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process.h"

#define PROC_PATH   64
#define STATUS_LINE 256
#define STAT_START  20 /* spaces between the end of the name and the start time, proc(5) */

/* Reads a whole small file of /proc, as a string. 0; -ESRCH: no such process; -errno: it can't
   be read. */
static int read_proc(pid_t pid, const char *name, char *text, size_t cap)
{
	char path[48];
	ssize_t n;
	int fd, rc;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = read(fd, text, cap - 1);
	rc = n > 0 ? 0 : n < 0 ? -errno : -ESRCH;
	close(fd);
	text[n > 0 ? n : 0] = 0;
	return rc;
}

int process_find(pid_t pid, struct process *process)
{
	char text[2048];
	const char *at;
	int rc;

	*process = (struct process){.pid = pid};
	rc = read_proc(pid, "stat", text, sizeof(text));
	if (rc)
		return rc;
	at = strrchr(text, ')');
	for (int i = 0; at && i < STAT_START; i++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -ESRCH;
	process->start_ticks = strtoull(at + 1, NULL, 10);
	rc = read_proc(pid, "status", text, sizeof(text));
	if (rc)
		return rc;
	at = strstr(text, "\nUid:");
	if (!at)
		return -ESRCH;
	process->uid = (uid_t)strtoul(at + strlen("\nUid:"), NULL, 10);
	return 0;
}

bool process_lives(int pidfd)
{
	return pidfd >= 0 && (!syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) || errno == EPERM);
}

void process_name(pid_t pid, char name[64])
{
	char path[64], comm[32] = "?";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (file) {
		if (fgets(comm, sizeof(comm), file))
			comm[strcspn(comm, "\n")] = 0;
		fclose(file);
	}
	snprintf(name, 64, "%d (%s)", (int)pid, comm);
}

/* Returns the text behind the last tab of a line of a status file, in `line`; NULL: there is no
   such line. */
static const char *status_word(const char *path, const char *name, char line[STATUS_LINE])
{
	FILE *file = fopen(path, "re");
	const char *tab = NULL;

	if (!file)
		return NULL;
	while (!tab && fgets(line, STATUS_LINE, file))
		if (strncmp(line, name, strlen(name)) == 0)
			tab = strrchr(line, '\t');
	fclose(file);
	return tab ? tab + 1 : NULL;
}

/* Returns the number on that line; 0: there is none. */
static uint32_t status_number(const char *path, const char *name)
{
	char line[STATUS_LINE];
	const char *word = status_word(path, name, line);

	return word ? (uint32_t)strtoul(word, NULL, 10) : 0;
}

/* Does not read /proc/PID/stat: that waits for an execve to end (Linux 6.18). */
char process_state(pid_t pid)
{
	char path[PROC_PATH], line[STATUS_LINE];
	const char *word;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	word = status_word(path, "State:", line);
	return word ? *word : 0;
}

pid_t process_parent(pid_t pid)
{
	char path[PROC_PATH];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return (pid_t)status_number(path, "PPid:");
}

pid_t process_tracer(pid_t pid, pid_t tid)
{
	char path[PROC_PATH];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	return (pid_t)status_number(path, "TracerPid:");
}

static bool file_says(const char *path, const char *words)
{
	char line[64];
	bool says = false;
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	while (!says && fgets(line, sizeof(line), file))
		says = strncmp(line, words, strlen(words)) == 0;
	fclose(file);
	return says;
}

/* Whether the cgroup of a line of /proc/PID/cgroup, "HIERARCHY:CONTROLLERS:PATH", is frozen. */
static bool frozen_by(char *line)
{
	char *controllers = strchr(line, ':'), *path, file[4200];

	path = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!path)
		return false;
	*path++ = 0;
	path[strcspn(path, "\n")] = 0;
	if (strcmp(line, "0:") == 0) {
		snprintf(file, sizeof(file), "/sys/fs/cgroup%s/cgroup.events", path);
		if (file_says(file, "frozen 1"))
			return true;
		snprintf(file, sizeof(file), "/sys/fs/cgroup/unified%s/cgroup.events", path);
		return file_says(file, "frozen 1");
	}
	if (!strstr(controllers, "freezer"))
		return false;
	snprintf(file, sizeof(file), "/sys/fs/cgroup/freezer%s/freezer.state", path);
	return file_says(file, "FROZEN") || file_says(file, "FREEZING");
}

bool process_frozen(pid_t pid)
{
	char path[PROC_PATH], *line = NULL;
	bool frozen = false;
	size_t cap = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (!frozen && getline(&line, &cap, file) > 0)
		frozen = frozen_by(line);
	free(line);
	fclose(file);
	return frozen;
}

/* Returns a thread's id in its own pid namespace. */
static uint32_t own_tid(pid_t pid, pid_t tid)
{
	char path[PROC_PATH];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	return status_number(path, "NSpid:");
}

/* Returns the first thread of `pid` of which `is` says yes; 0: none. */
static pid_t find_thread(pid_t pid, bool (*is)(pid_t pid, pid_t tid, const void *arg),
			 const void *arg)
{
	char path[PROC_PATH];
	struct dirent *entry;
	pid_t found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return 0;
	while (!found && (entry = readdir(dir))) {
		pid_t one = atoi(entry->d_name);

		if (one > 0 && is(pid, one, arg))
			found = one;
	}
	closedir(dir);
	return found;
}

static bool is_tid(pid_t pid, pid_t tid, const void *arg)
{
	const uint32_t *wanted = arg;

	return own_tid(pid, tid) == *wanted;
}

static bool is_named(pid_t pid, pid_t tid, const void *arg)
{
	const char *wanted = arg;
	char file[32], name[32];

	snprintf(file, sizeof(file), "task/%d/comm", (int)tid);
	if (read_proc(pid, file, name, sizeof(name)))
		return false;
	name[strcspn(name, "\n")] = 0;
	return strcmp(name, wanted) == 0;
}

pid_t process_tid(pid_t pid, uint32_t tid)
{
	if (own_tid(pid, (pid_t)tid) == tid)
		return (pid_t)tid; /* the daemon's own namespace, nearly always */
	return find_thread(pid, is_tid, &tid);
}

pid_t process_thread_named(pid_t pid, const char *name)
{
	return find_thread(pid, is_named, name);
}
