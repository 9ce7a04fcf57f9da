/*
 * The kernel's API through kernel.h: userfaultfd on tmpfs, PAGEMAP_SCAN, PROCMAP_QUERY.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kernel.h"
#include "lib/run_suite.h"

#define PAGE  UINT64_C(4096)
#define PAGES UINT64_C(16)
#define FEATURES                                                                                   \
	(UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM | \
	 KERNEL_UFFD_WP_UNPOPULATED | KERNEL_UFFD_WP_ASYNC | KERNEL_UFFD_POISON)

static int file, uffd;
static uint8_t *map;
static uint64_t at; /* map as an address */

/* A file of PAGES pages, the first 8 with data, mapped and registered, no page of it present. */
static void registered(void)
{
	uint8_t data[8 * PAGE];

	memset(data, 7, sizeof(data));
	file = memfd_create("kernel", MFD_CLOEXEC);
	ck_assert_int_ge(file, 0);
	ck_assert_int_eq(ftruncate(file, PAGES * PAGE), 0);
	ck_assert_int_eq(pwrite(file, data, sizeof(data), 0), sizeof(data));
	map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	at = (uintptr_t)map;
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	ck_assert_int_ge(uffd, 0);
	ck_assert_int_eq(kernel_uffd_api(uffd, FEATURES), 0);
	ck_assert_int_eq(kernel_uffd_register(uffd, at, PAGES * PAGE, KERNEL_UFFD_MODES), 0);
}

START_TEST(continue_counts_what_is_mapped)
{
	registered();
	ck_assert_int_eq(kernel_uffd_continue(uffd, at + 2 * PAGE, PAGE, true), PAGE);
	/* the third is mapped already, the ninth is a hole */
	ck_assert_int_eq(kernel_uffd_continue(uffd, at, PAGES * PAGE, true), 8 * PAGE);
	ck_assert_int_eq(kernel_uffd_continue(uffd, at, 8 * PAGE, false), 8 * PAGE);
	ck_assert_int_eq(kernel_uffd_continue(uffd, at + 8 * PAGE, PAGE, true), -EFAULT);
	ck_assert_uint_eq(map[7 * PAGE], 7);
	ck_assert_int_eq(kernel_uffd_unregister(uffd, at, PAGES * PAGE), 0);
	ck_assert_int_eq(kernel_uffd_continue(uffd, at, PAGE, true), -ENOENT);
	ck_assert_uint_eq(map[9 * PAGE], 0);
}
END_TEST

static void *load(void *arg)
{
	return (void *)(uintptr_t) * (volatile uint8_t *)arg;
}

START_TEST(a_blocked_load_goes_on_by_continue_of_a_page_that_is_mapped_already)
{
	struct uffd_msg msg;
	pthread_t thread;
	void *seen;

	registered();
	pthread_create(&thread, NULL, load, map);
	while (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
		ck_assert_int_eq(errno, EAGAIN);
	ck_assert_uint_eq(msg.arg.pagefault.address & ~(PAGE - 1), at);
	/* mapped, but no thread is woken: the second call must wake */
	ck_assert_int_eq(kernel_uffd_continue(uffd, at, PAGE, false), PAGE);
	ck_assert_int_eq(kernel_uffd_continue(uffd, at, PAGE, true), PAGE);
	pthread_join(thread, &seen);
	ck_assert_uint_eq((uintptr_t)seen, 7);
}
END_TEST

START_TEST(poison_and_protection)
{
	pid_t child;
	int status;

	registered();
	ck_assert_int_eq(kernel_uffd_continue(uffd, at, PAGE, true), PAGE);
	ck_assert_int_eq(kernel_uffd_poison(uffd, at, PAGE), -EEXIST);
	ck_assert_int_eq(kernel_uffd_poison(uffd, at + PAGE, 2 * PAGE), 2 * PAGE);
	/* a load of it is SIGBUS: in a thread of this process, so in a child that ends by it */
	fflush(stdout);
	child = fork();
	if (child == 0) {
		signal(SIGBUS, SIG_DFL); /* a sanitizer has its own */
		registered();
		kernel_uffd_poison(uffd, at + PAGE, PAGE);
		load(map + PAGE);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	/* and CONTINUE lifts it */
	ck_assert_int_eq(kernel_uffd_continue(uffd, at + PAGE, PAGE, true), PAGE);
	ck_assert_uint_eq(map[PAGE], 7);
	ck_assert_int_eq(kernel_uffd_protect(uffd, at, PAGE, true), 0);
	ck_assert_int_eq(kernel_uffd_protect(uffd, at, PAGE, false), 0);
}
END_TEST

START_TEST(pagemap_says_what_is_present)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	const struct kernel_page_kind present = {.all = KERNEL_PAGE_PRESENT};
	const struct kernel_page_kind of_a_file = {.any = KERNEL_PAGE_FILE | KERNEL_PAGE_HUGE};
	const struct kernel_page_kind own = {.none = KERNEL_PAGE_FILE, .any = KERNEL_PAGE_PRESENT};
	uint64_t where = 0, end;

	registered();
	end = at + PAGES * PAGE;
	ck_assert_int_ge(pagemap, 0);
	ck_assert_int_eq(kernel_pagemap_find(pagemap, at, end, present, NULL), 0);
	kernel_uffd_continue(uffd, at + 5 * PAGE, PAGE, true);
	ck_assert_int_eq(kernel_pagemap_find(pagemap, at, end, present, &where), 1);
	ck_assert_uint_eq(where, at + 5 * PAGE);
	ck_assert_int_eq(kernel_pagemap_find(pagemap, at, end, of_a_file, NULL), 1);
	ck_assert_int_eq(kernel_pagemap_find(pagemap, at, end, own, NULL), 0);
	ck_assert_int_eq(madvise(map, PAGES * PAGE, MADV_DONTNEED), 0);
	ck_assert_int_eq(kernel_pagemap_find(pagemap, at, end, present, NULL), 0);
	close(pagemap);
}
END_TEST

static void on_signal(int number)
{
	(void)number;
}

/* A child that sleeps in a read, with SIGUSR1 handled, SIGTERM ignored and SIGUSR2 blocked. */
static pid_t sleeper(int ends[2])
{
	sigset_t blocked;
	pid_t child;
	char byte;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		signal(SIGUSR1, on_signal);
		signal(SIGTERM, SIG_IGN);
		signal(SIGINT, SIG_DFL); /* a shell may have had it ignored */
		sigemptyset(&blocked);
		sigaddset(&blocked, SIGUSR2);
		sigaddset(&blocked, SIGQUIT);
		sigprocmask(SIG_BLOCK, &blocked, NULL);
		_exit(write(ends[1], "x", 1) != 1 || pause());
	}
	ck_assert_int_eq(read(ends[0], &byte, 1), 1);
	return child;
}

START_TEST(whether_a_signal_ends_a_thread)
{
	int ends[2], status;
	pid_t child = sleeper(ends);

	ck_assert(!kernel_ends(getpid()));
	ck_assert(!kernel_ends(child));
	/* It is held by ptrace, so that signals sent to it wait. */
	ck_assert_int_eq(ptrace(PTRACE_SEIZE, child, NULL, NULL), 0);
	ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, child, NULL, NULL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	kill(child, SIGUSR1);
	kill(child, SIGTERM);
	kill(child, SIGUSR2);
	kill(child, SIGQUIT);
	kill(child, SIGCHLD);
	kill(child, SIGTSTP);
	ck_assert(!kernel_ends(child));
	kill(child, SIGINT);
	ck_assert(kernel_ends(child));
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(kernel_ends(child));
	close(ends[0]);
	close(ends[1]);
}
END_TEST

/* Returns how many mappings of `file` there are, by the query or by the text. */
static int count_mappings(int (*open_maps)(struct kernel_maps *, pid_t), uint64_t from, uint64_t to,
			  struct kernel_vma *last)
{
	struct kernel_maps maps;
	struct kernel_vma vma;
	struct stat st;
	int n = 0, rc;

	ck_assert_int_eq(fstat(file, &st), 0);
	ck_assert_int_eq(open_maps(&maps, getpid()), 0);
	while ((rc = kernel_maps_next(&maps, from, to, &vma)) == 1) {
		ck_assert_uint_gt(vma.end, from);
		ck_assert_uint_lt(vma.start, to);
		from = vma.end;
		if (vma.inode == st.st_ino && makedev(vma.dev_major, vma.dev_minor) == st.st_dev) {
			n++;
			*last = vma;
		}
	}
	ck_assert_int_eq(rc, 0);
	/* once more from the start, which the text has to be read again for */
	ck_assert_int_eq(kernel_maps_next(&maps, 0, UINT64_MAX, &vma), 1);
	kernel_maps_close(&maps);
	return n;
}

START_TEST(mappings_are_found_by_query_and_by_text)
{
	int (*const ways[])(struct kernel_maps *, pid_t) = {kernel_maps_open,
							    kernel_maps_open_text};
	const uint64_t top = UINT64_C(1) << 47;
	struct kernel_vma vma;
	struct kernel_maps maps;
	void *second;
	uint64_t own;

	registered();
	own = (uintptr_t)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	second = mmap(NULL, 3 * PAGE, PROT_READ, MAP_PRIVATE, file, 4 * PAGE);
	ck_assert_ptr_ne(second, MAP_FAILED);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(count_mappings(ways[i], 0, top, &vma), 2);
		ck_assert_int_eq(count_mappings(ways[i], at + PAGE, at + 2 * PAGE, &vma), 1);
		ck_assert_uint_eq(vma.start, at);
		ck_assert_uint_eq(vma.end, at + PAGES * PAGE);
		ck_assert_uint_eq(vma.offset, 0);
		ck_assert_uint_eq(vma.flags,
				  KERNEL_VMA_READ | KERNEL_VMA_WRITE | KERNEL_VMA_SHARED);
		ck_assert_int_eq(
			count_mappings(ways[i], (uintptr_t)second, (uintptr_t)second + PAGE, &vma),
			1);
		ck_assert_uint_eq(vma.offset, 4 * PAGE);
		ck_assert_uint_eq(vma.flags, KERNEL_VMA_READ);
		ck_assert_int_lt(ways[i](&maps, 0x7ffffff), 0);
		ck_assert_int_eq(ways[i](&maps, getpid()), 0);
		ck_assert_int_eq(kernel_maps_next(&maps, own, own + PAGE, &vma), 0);
		ck_assert_int_eq(kernel_maps_next_any(&maps, own, own + PAGE, &vma), 1);
		ck_assert_uint_le(vma.start, own);
		ck_assert_uint_gt(vma.end, own);
		kernel_maps_close(&maps);
	}
	ck_assert_int_gt(kernel_version(), 600);
}
END_TEST

/* Returns the policy of a thread that this one starts. */
static void *policy(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)sched_getscheduler(0);
}

static int childs_policy(void)
{
	pthread_t thread;
	void *is;

	ck_assert_int_eq(pthread_create(&thread, NULL, policy, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &is), 0);
	return (int)(intptr_t)is;
}

START_TEST(who_is_in_a_hurry_is_so_alone)
{
	struct kernel_rt_boost boost = {0};
	struct sched_param param;

	for (int i = 0; i < 3; i++) {
		for (int again = 0; again < 2; again++) {
			ck_assert_int_eq(kernel_rt_boost_while(&boost, true), 0);
			ck_assert_int_eq(sched_getscheduler(0), SCHED_RR | SCHED_RESET_ON_FORK);
			ck_assert_int_eq(sched_getparam(0, &param), 0);
			ck_assert_int_eq(param.sched_priority, KERNEL_FAULT_PRIORITY);
			ck_assert_int_eq(childs_policy(), SCHED_OTHER);
		}
		for (int again = 0; again < 2; again++) {
			ck_assert_int_eq(kernel_rt_boost_while(&boost, false), 0);
			ck_assert_int_eq(sched_getscheduler(0), SCHED_OTHER);
		}
	}
}
END_TEST

/* In a child of the test's own: privileges don't come back. */
START_TEST(who_may_not_hurry_is_told_once)
{
	const struct rlimit none = {0, 0};
	struct kernel_rt_boost boost = {0};

	ck_assert_int_eq(setrlimit(RLIMIT_RTPRIO, &none), 0);
	ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
	ck_assert_int_eq(kernel_rt_boost_while(&boost, false), 0);
	ck_assert_int_eq(kernel_rt_boost_while(&boost, true), -EPERM);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(kernel_rt_boost_while(&boost, i % 2), 0);
	ck_assert_int_eq(sched_getscheduler(0), SCHED_OTHER);
}
END_TEST

START_TEST(processors_are_those_that_may_be_used)
{
	cpu_set_t one;

	ck_assert_uint_eq(kernel_processors(), (unsigned int)sysconf(_SC_NPROCESSORS_ONLN));
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_uint_eq(kernel_processors(), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel");
	TCase *c = tcase_create("kernel");

	if (geteuid() != 0)
		return 77;
	tcase_add_test(c, continue_counts_what_is_mapped);
	tcase_add_test(c, a_blocked_load_goes_on_by_continue_of_a_page_that_is_mapped_already);
	tcase_add_test(c, poison_and_protection);
	tcase_add_test(c, pagemap_says_what_is_present);
	tcase_add_test(c, whether_a_signal_ends_a_thread);
	tcase_add_test(c, mappings_are_found_by_query_and_by_text);
	tcase_add_test(c, who_is_in_a_hurry_is_so_alone);
	tcase_add_test(c, who_may_not_hurry_is_told_once);
	tcase_add_test(c, processors_are_those_that_may_be_used);
	suite_add_tcase(s, c);
	return run_suite(s);
}
