/*
 * Finds processes that may have pages of a segment pinned.
 *
 * A device that reads into pinned pages stores without any page table: with direct I/O, io_uring or RDMA
 * under way a page can change after it was looked at, and nothing says so. The descriptors that a
 * process has open show that it may do that.
 *
 * How it fails: what is opened between two looks, used, and closed again is not found. A process that
 * can't be looked into is -EBUSY.
 */
#include "pins.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/attach/mapped_segment.h"
#include "programs/client/clients.h"
#include "programs/proc/bounded.h"
#include "programs/proc/process.h"

#define PINS_PATH 64

enum pin { PIN_NONE, PIN_DIRECT, PIN_URING, PIN_RDMA };

static const char *const pin_names[] = {
	[PIN_DIRECT] = "a file open for direct I/O (O_DIRECT)",
	[PIN_URING] = "an io_uring",
	[PIN_RDMA] = "an RDMA device",
};

/* Returns true where that descriptor was opened with O_DIRECT. */
static bool is_direct(const char *thread, const char *fd)
{
	char path[PINS_PATH + 256], line[64];
	bool direct = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/fdinfo/%s", thread, fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "flags:", 6) == 0)
			direct = strtoul(line + 6, NULL, 8) & O_DIRECT;
	if (f)
		fclose(f);
	return direct;
}

static enum pin pin_of(const char *thread, int dir, const char *fd)
{
	char target[PINS_PATH];
	ssize_t n = readlinkat(dir, fd, target, sizeof(target) - 1);

	if (n < 0)
		return PIN_NONE; /* closed meanwhile */
	target[n] = 0;
	if (strcmp(target, "anon_inode:[io_uring]") == 0)
		return PIN_URING;
	if (strncmp(target, "/dev/infiniband/uverbs", 22) == 0)
		return PIN_RDMA;
	return target[0] == '/' && is_direct(thread, fd) ? PIN_DIRECT : PIN_NONE;
}

/* Returns the next entry but "." and "..", or NULL; *rc is -errno then, and 0 where the process has
   ended. */
static const char *next_entry(DIR *dir, int *rc)
{
	const struct dirent *entry;

	do {
		errno = 0;
		/* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this thread's */
		entry = readdir(dir);
	} while (entry && entry->d_name[0] == '.');
	*rc = entry || errno == ENOENT || errno == ESRCH ? 0 : -errno;
	return entry ? entry->d_name : NULL;
}

/* Looks at the descriptors that `thread`, a directory of /proc, shows. Returns an enum pin, or -errno;
   *any: it shows some. */
static int look_at_thread(const char *thread, bool *any)
{
	char path[PINS_PATH + 8];
	int pin = PIN_NONE, rc;
	const char *fd;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/fd", thread);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? PIN_NONE : -errno;
	while (!pin && (fd = next_entry(dir, &rc))) {
		*any = true;
		pin = (int)pin_of(thread, dirfd(dir), fd);
	}
	closedir(dir);
	return pin ? pin : rc;
}

/* Looks at each thread's. */
static int look_at_all_threads(pid_t pid)
{
	char path[PINS_PATH];
	int pin = PIN_NONE, rc;
	const char *tid;
	bool any;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	if (!dir)
		return errno == ENOENT ? PIN_NONE : -errno;
	while (!pin && (tid = next_entry(dir, &rc))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, atoi(tid));
		pin = look_at_thread(path, &any);
	}
	closedir(dir);
	return pin ? pin : rc;
}

/* Returns an enum pin, or -errno. A main thread that has ended shows no descriptors, and its process's are
   open all the same. */
static int look_pins(struct bounded *bounded, void *arg, struct client *client)
{
	char path[PINS_PATH];
	bool any = false;
	int pin;

	(void)bounded;
	(void)arg;
	snprintf(path, sizeof(path), "/proc/%d", (int)client->pid);
	pin = look_at_thread(path, &any);
	return pin || any ? pin : look_at_all_threads(client->pid);
}

int pins_look(struct mapped_segment *mseg, struct ramp_err *err)
{
	struct client **clients;
	char name[64];
	size_t count;
	pid_t pid;
	int rc;

	clients = mseg_clients(mseg, &count);
	if (!clients)
		return ramp_err_sys(err, ENOMEM, "attachments");
	rc = clients_look(clients, count, look_pins, NULL, 0, &pid);
	if (!rc)
		return 0;
	if (!pid)
		return ramp_err_sys(err, -rc, "looking into sessions");
	process_name(pid, name);
	return rc > 0 ? ramp_err_set(
				err, EBUSY,
				"process %s maps it and has %s, which may store into it unseen",
				name, pin_names[rc])
		      : ramp_err_set(err, EBUSY, "looking into process %s: %s", name,
				     strerror(-rc));
}
