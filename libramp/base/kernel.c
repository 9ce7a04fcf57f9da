#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "ids.h"

/* ---- userfaultfd ------------------------------------------------------------------------ */

int kernel_uffd_api(int uffd, uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	return ioctl(uffd, UFFDIO_API, &api) ? -errno : 0;
}

int kernel_uffd_register(int uffd, uint64_t start, uint64_t len, uint64_t modes)
{
	struct uffdio_register reg = {.range = {start, len}, .mode = modes};

	return ioctl(uffd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

int kernel_uffd_unregister(int uffd, uint64_t start, uint64_t len)
{
	struct uffdio_range range = {start, len};

	return ioctl(uffd, UFFDIO_UNREGISTER, &range) ? -errno : 0;
}

int kernel_uffd_wake(int uffd, uint64_t start, uint64_t len)
{
	struct uffdio_range range = {start, len};

	return ioctl(uffd, UFFDIO_WAKE, &range) ? -errno : 0;
}

/*
 * The kernel stops at the first page that it can't map and says how far it came: errno EAGAIN with
 * the count, or that page's own errno if it was the first. So a call after a partial one gets the
 * reason.
 */
int64_t kernel_uffd_continue(int uffd, uint64_t start, uint64_t len, bool wake)
{
	uint64_t done = 0;
	bool skipped = false;
	int why = 0;

	while (done < len) {
		struct uffdio_continue arg = {.range = {start + done, len - done},
					      .mode = wake ? 0 : UFFDIO_CONTINUE_MODE_DONTWAKE};

		if (!ioctl(uffd, UFFDIO_CONTINUE, &arg)) {
			done = len;
		} else if (arg.mapped > 0) {
			done += (uint64_t)arg.mapped;
		} else if (errno == EEXIST) {
			done += RAMP_PAGE_BYTES;
			skipped = true;
		} else {
			why = -errno;
			break;
		}
	}
	/* CONTINUE wakes only threads at pages that it mapped itself. */
	if (skipped && wake)
		kernel_uffd_wake(uffd, start, done);
	return done ? (int64_t)done : why;
}

int64_t kernel_uffd_poison(int uffd, uint64_t start, uint64_t len)
{
	uint64_t done = 0;

	while (done < len) {
		struct kernel_uffdio_poison arg = {.range = {start + done, len - done}};

		if (!ioctl(uffd, KERNEL_UFFDIO_POISON, &arg))
			return (int64_t)len;
		if (arg.updated <= 0)
			return done ? (int64_t)done : -errno;
		done += (uint64_t)arg.updated;
	}
	return (int64_t)done;
}

int kernel_uffd_protect(int uffd, uint64_t start, uint64_t len, bool on)
{
	struct uffdio_writeprotect arg = {.range = {start, len},
					  .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};

	return ioctl(uffd, UFFDIO_WRITEPROTECT, &arg) ? -errno : 0;
}

/* ---- /proc/PID/pagemap -------------------------------------------------------------------- */

int kernel_pagemap_find(int pagemap_fd, uint64_t start, uint64_t end, struct kernel_page_kind kind,
			uint64_t *at)
{
	struct kernel_page_region first;
	struct kernel_pm_scan scan = {
		.size = sizeof(scan),
		.start = start,
		.end = end,
		.vec = (uint64_t)(uintptr_t)&first,
		.vec_len = 1,
		.max_pages = 1,
		.category_inverted = kind.none,
		.category_mask = kind.all | kind.none,
		.category_anyof_mask = kind.any,
		.return_mask = KERNEL_PAGE_PRESENT,
	};
	int n = ioctl(pagemap_fd, KERNEL_PAGEMAP_SCAN, &scan);

	if (n < 0)
		return -errno;
	if (n > 0 && at)
		*at = first.start;
	return n > 0;
}

int kernel_pagemap_each(int pagemap_fd, uint64_t start, uint64_t end, struct kernel_page_kind kind,
			bool arm, kernel_region_fn *fn, void *arg)
{
	struct kernel_page_region regions[KERNEL_PAGEMAP_REGIONS];
	struct kernel_pm_scan scan = {
		.size = sizeof(scan),
		.flags = arm ? KERNEL_PM_WP | KERNEL_PM_CHECK_WP : 0,
		.end = end,
		.vec = (uint64_t)(uintptr_t)regions,
		.vec_len = KERNEL_PAGEMAP_REGIONS,
		.category_inverted = kind.none,
		.category_mask = kind.all | kind.none,
		.category_anyof_mask = kind.any,
		/* For WRITTEN alone, and nothing else returned, the kernel reads entries only. */
		.return_mask = kind.all == KERNEL_PAGE_WRITTEN && !kind.none && !kind.any
				       ? KERNEL_PAGE_WRITTEN
				       : KERNEL_PAGE_PRESENT | KERNEL_PAGE_SWAPPED,
	};

	for (scan.start = start; scan.start < end; scan.start = scan.walk_end) {
		int n = ioctl(pagemap_fd, KERNEL_PAGEMAP_SCAN, &scan);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		for (int i = 0; i < n; i++)
			fn(arg, regions[i].start, regions[i].end);
		if (scan.walk_end <= scan.start)
			return -EIO;
	}
	return 0;
}

/* ---- /proc/TID/status ----------------------------------------------------------------------- */

#define SIGNAL(s) (UINT64_C(1) << ((s)-1))
#define HARMLESS                                                                                   \
	(SIGNAL(SIGCHLD) | SIGNAL(SIGCONT) | SIGNAL(SIGURG) | SIGNAL(SIGWINCH) | SIGNAL(SIGSTOP) | \
	 SIGNAL(SIGTSTP) | SIGNAL(SIGTTIN) | SIGNAL(SIGTTOU))

/* The kernel marks all threads of a process that is about to end by a pending SIGKILL, except for
   signals that leave a core, and under a debugger. */
bool kernel_ends(pid_t thread)
{
	enum { PENDING, SHARED, BLOCKED, IGNORED, CAUGHT, SETS };
	static const char *const names[SETS] = {"SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"};
	uint64_t sets[SETS] = {0}, waiting;
	char path[64], line[128];
	FILE *f;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
	f = fopen(path, "re");
	if (!f)
		return true;
	while (fgets(line, sizeof(line), f))
		for (int i = 0; i < SETS; i++)
			if (strncmp(line, names[i], 6) == 0 && line[6] == ':') {
				sets[i] = strtoull(line + 7, NULL, 16);
				found++;
			}
	fclose(f);
	waiting = sets[PENDING] | sets[SHARED];
	return found != SETS || waiting & SIGNAL(SIGKILL) ||
	       waiting & ~(sets[BLOCKED] | sets[IGNORED] | sets[CAUGHT] | HARMLESS);
}

/* ---- /proc/PID/maps ------------------------------------------------------------------------ */

static int open_proc_maps(pid_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int query(int fd, uint64_t from, bool any, struct kernel_vma *vma)
{
	struct kernel_procmap_query q = {
		.size = sizeof(q),
		.query_flags = KERNEL_PROCMAP_NEXT | (any ? 0 : KERNEL_PROCMAP_FILE),
		.query_addr = from,
	};

	if (ioctl(fd, KERNEL_PROCMAP_QUERY, &q))
		return errno == ENOENT ? 0 : -errno;
	*vma = (struct kernel_vma){
		.start = q.vma_start,
		.end = q.vma_end,
		.offset = q.vma_offset,
		.inode = q.inode,
		.dev_major = q.dev_major,
		.dev_minor = q.dev_minor,
		.flags = (uint32_t)q.vma_flags,
	};
	return 1;
}

int kernel_maps_open_text(struct kernel_maps *maps, pid_t pid)
{
	int fd = open_proc_maps(pid);
	int saved;

	if (fd < 0)
		return fd;
	*maps = (struct kernel_maps){.fd = -1, .text = fdopen(fd, "re"), .text_at = UINT64_MAX};
	if (!maps->text) {
		saved = errno;
		close(fd);
		return -saved;
	}
	return 0;
}

int kernel_maps_open(struct kernel_maps *maps, pid_t pid)
{
	struct kernel_vma vma;
	int fd = open_proc_maps(pid);
	int rc;

	if (fd < 0)
		return fd;
	rc = query(fd, 0, false, &vma);
	if (rc == -ENOTTY) {
		close(fd);
		return kernel_maps_open_text(maps, pid);
	}
	if (rc < 0 && rc != -ESRCH) {
		close(fd);
		return rc;
	}
	*maps = (struct kernel_maps){.fd = fd};
	return 0;
}

/* Parses "start-end rwxs offset major:minor inode path". False: not a line of maps. */
static bool parse_line(const char *line, struct kernel_vma *vma)
{
	char prot[5];

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &vma->start,
		   &vma->end, prot, &vma->offset, &vma->dev_major, &vma->dev_minor,
		   &vma->inode) != 7)
		return false;
	vma->flags =
		(prot[0] == 'r' ? KERNEL_VMA_READ : 0) | (prot[1] == 'w' ? KERNEL_VMA_WRITE : 0) |
		(prot[2] == 'x' ? KERNEL_VMA_EXEC : 0) | (prot[3] == 's' ? KERNEL_VMA_SHARED : 0);
	return true;
}

/* Reads one line. Its path may be of any length: the part that does not fit is discarded. */
static bool read_line(FILE *text, char *line, int cap)
{
	int c;

	if (!fgets(line, cap, text))
		return false;
	if (!strchr(line, '\n'))
		while ((c = fgetc(text)) != EOF && c != '\n')
			;
	return true;
}

static int next_in_text(struct kernel_maps *maps, uint64_t from, bool any, struct kernel_vma *vma)
{
	char line[256];

	if (from < maps->text_at) {
		fflush(maps->text); /* the buffered text is old */
		rewind(maps->text);
	}
	while (read_line(maps->text, line, sizeof(line))) {
		if (!parse_line(line, vma))
			return -EIO;
		maps->text_at = vma->end;
		if ((any || vma->inode != 0) && vma->end > from)
			return 1;
	}
	maps->text_at = UINT64_MAX;
	return ferror(maps->text) ? -EIO : 0;
}

static int next_mapping(struct kernel_maps *maps, uint64_t from, uint64_t to, bool any,
			struct kernel_vma *vma)
{
	int rc = maps->text ? next_in_text(maps, from, any, vma) : query(maps->fd, from, any, vma);

	if (rc <= 0)
		return rc;
	if (vma->start >= to) {
		/* The line is consumed, but the next call may ask for it: read again then. */
		if (maps->text)
			maps->text_at = UINT64_MAX;
		return 0;
	}
	return 1;
}

int kernel_maps_next(struct kernel_maps *maps, uint64_t from, uint64_t to, struct kernel_vma *vma)
{
	return next_mapping(maps, from, to, false, vma);
}

int kernel_maps_next_any(struct kernel_maps *maps, uint64_t from, uint64_t to,
			 struct kernel_vma *vma)
{
	return next_mapping(maps, from, to, true, vma);
}

int kernel_maps_name(struct kernel_maps *maps, uint64_t addr, char *name, uint32_t cap)
{
	struct kernel_procmap_query q = {
		.size = sizeof(q),
		.query_flags = KERNEL_PROCMAP_FILE,
		.query_addr = addr,
		.vma_name_addr = (uintptr_t)name,
		.vma_name_size = cap,
	};

	if (maps->text)
		return -EOPNOTSUPP;
	return ioctl(maps->fd, KERNEL_PROCMAP_QUERY, &q) ? -errno : 0;
}

int kernel_same_file(int a, int b)
{
	pid_t self = getpid();
	long rc = syscall(SYS_kcmp, self, self, KCMP_FILE, a, b);

	return rc < 0 ? -errno : rc == 0;
}

void kernel_maps_close(struct kernel_maps *maps)
{
	if (maps->text)
		fclose(maps->text);
	else
		close(maps->fd);
}

int kernel_version(void)
{
	struct utsname name;
	int major, minor;

	if (uname(&name) || sscanf(name.release, "%d.%d", &major, &minor) != 2)
		return 0;
	return major * 100 + minor;
}

int kernel_refuse_fds(int sock)
{
	const int pass = 0;

	return setsockopt(sock, SOL_SOCKET, KERNEL_SO_PASSRIGHTS, &pass, sizeof(pass)) ? -errno : 0;
}

#define KEEP_POLICY 0x08u /* SCHED_FLAG_KEEP_POLICY */

struct sched_attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static int get_attributes(pid_t tid, struct sched_attributes *attr)
{
	if (syscall(SYS_sched_getattr, tid, attr, sizeof(*attr), 0))
		return -errno;
	if (attr->policy != SCHED_OTHER && attr->policy != SCHED_BATCH &&
	    attr->policy != SCHED_IDLE)
		return -ENOTSUP;
	return attr->runtime ? 0 : -ENOTSUP;
}

int kernel_slice(pid_t tid, uint64_t *ns)
{
	struct sched_attributes attr = {0};
	int rc = get_attributes(tid, &attr);

	*ns = attr.runtime;
	return rc;
}

int kernel_slice_set(pid_t tid, uint64_t ns)
{
	struct sched_attributes attr = {0};
	int rc = get_attributes(tid, &attr);

	if (rc)
		return rc;
	attr.size = sizeof(attr);
	attr.runtime = ns;
	attr.flags |= KEEP_POLICY;
	return syscall(SYS_sched_setattr, tid, &attr, 0) ? -errno : 0;
}

int kernel_rt_boost(int priority)
{
	struct sched_param param = {.sched_priority = priority};
	int policy = priority ? SCHED_RR | SCHED_RESET_ON_FORK : SCHED_OTHER;

	return sched_setscheduler(0, policy, &param) ? -errno : 0;
}

int kernel_rt_boost_while(struct kernel_rt_boost *boost, bool on)
{
	int rc;

	if (boost->on == on || boost->denied)
		return 0;
	rc = kernel_rt_boost(on ? KERNEL_FAULT_PRIORITY : 0);
	if (rc)
		boost->denied = true;
	else
		boost->on = on;
	return rc;
}

unsigned int kernel_processors(void)
{
	cpu_set_t set;
	long online;

	/* EINVAL: more processors than the set has room for. */
	if (!sched_getaffinity(0, sizeof(set), &set))
		return (unsigned int)CPU_COUNT(&set);
	online = sysconf(_SC_NPROCESSORS_ONLN);
	return online > 0 ? (unsigned int)online : 1;
}

uint64_t kernel_idle_us(void)
{
	char text[256]; /* the first line is of all processors */
	int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	uint64_t idle, waiting;
	long ticks = sysconf(_SC_CLK_TCK);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	if (ticks <= 0 ||
	    sscanf(text, "cpu %*u %*u %*u %" SCNu64 " %" SCNu64, &idle, &waiting) != 2)
		return 0;
	return (idle + waiting) * 1000000 / (uint64_t)ticks;
}
