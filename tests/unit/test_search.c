/*
 * Looks at /proc that several callers share: each finds its own file, and one look serves all that came
 * while another was under way.
 */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "lib/run_suite.h"
#include "programs/proc/bounded.h"
#include "programs/proc/search.h"

#define FILES 8
#define PAGE  4096
#define MAPS  3 /* of each file, the files in turn */

static _Atomic unsigned looked;
static _Atomic bool hold_first;

bool __real_bounded_look(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck);
bool __wrap_bounded_look(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck);

bool __wrap_bounded_look(bounded_fn *fn, void *arg, bounded_forget *forget, int *rc, pid_t *stuck)
{
	if (atomic_fetch_add(&looked, 1) == 0)
		while (atomic_load(&hold_first))
			usleep(1000);
	return __real_bounded_look(fn, arg, forget, rc, stuck);
}

struct seeking {
	struct stat st;
	pthread_t thread;
	uint64_t start, end;
	pid_t pid;
	unsigned found;
	int rc;
	_Atomic bool begun;
};

static int on_found(void *arg, pid_t pid, uint64_t start, uint64_t end)
{
	struct seeking *seeking = arg;

	seeking->pid = pid;
	seeking->start = start;
	seeking->end = end;
	seeking->found++;
	return 0;
}

static void *seek(void *arg)
{
	struct seeking *seeking = arg;
	pid_t stuck = 0;

	atomic_store(&seeking->begun, true);
	seeking->rc = search_all(seeking->st.st_dev, seeking->st.st_ino, SEARCH_NEW, on_found,
				 seeking, &stuck);
	ck_assert_int_eq(stuck, 0);
	return NULL;
}

START_TEST(callers_that_come_meanwhile_share_the_next_look)
{
	struct seeking all[FILES] = {0};
	int fds[FILES], said[2];
	uint8_t *at;
	pid_t child;
	char c;

	for (int i = 0; i < FILES; i++) {
		char path[] = "/dev/shm/test_search.XXXXXX";

		fds[i] = mkstemp(path);
		ck_assert_int_ge(fds[i], 0);
		unlink(path);
		ck_assert_int_eq(ftruncate(fds[i], PAGE), 0);
		ck_assert_int_eq(fstat(fds[i], &all[i].st), 0);
	}
	at = mmap(NULL, (size_t)FILES * MAPS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(pipe(said), 0);
	child = fork();
	if (child == 0) {
		/* The daemon's own mappings do not count, so another process has them; the last
		   file is mapped by none. */
		for (int i = 0; i < FILES * MAPS; i++)
			if (i % FILES < FILES - 1)
				(void)mmap(at + (size_t)i * PAGE, PAGE, PROT_READ,
					   MAP_SHARED | MAP_FIXED, fds[i % FILES], 0);
		(void)!write(said[1], "x", 1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(said[0], &c, 1), 1);
	atomic_store(&hold_first, true);
	for (int i = 0; i < FILES; i++) {
		pthread_create(&all[i].thread, NULL, seek, &all[i]);
		while (!atomic_load(&all[i].begun))
			usleep(1000);
		while (i == 0 && !atomic_load(&looked))
			usleep(1000);
	}
	usleep(100000); /* each has come to where it waits */
	ck_assert_uint_eq(atomic_load(&looked), 1);
	atomic_store(&hold_first, false);
	for (int i = 0; i < FILES; i++) {
		pthread_join(all[i].thread, NULL);
		ck_assert_int_eq(all[i].rc, 0);
		ck_assert_uint_eq(all[i].found, i < FILES - 1);
		if (i == FILES - 1)
			continue;
		ck_assert_int_eq(all[i].pid, child);
		ck_assert_uint_eq(all[i].start, (uintptr_t)at + (uint64_t)i * PAGE);
		ck_assert_uint_eq(all[i].end - all[i].start,
				  ((uint64_t)(MAPS - 1) * FILES + 1) * PAGE);
	}
	ck_assert_uint_eq(atomic_load(&looked), 2);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}
END_TEST

/* Where an answer may be as old as a request, a look that has begun since is enough. */
START_TEST(a_look_that_is_new_enough_is_taken_again)
{
	uint64_t began = clock_us();
	struct seeking seeking = {0};
	pid_t stuck = 0;

	ck_assert_int_eq(stat("/dev/shm", &seeking.st), 0);
	atomic_store(&looked, 1);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(search_all(seeking.st.st_dev, 1, i < 3 ? began : clock_us(),
					    on_found, &seeking, &stuck),
				 0);
		ck_assert_uint_eq(atomic_load(&looked), i < 3 ? 2 : 3);
		usleep(10);
	}
	ck_assert_int_eq(search_all(seeking.st.st_dev, 1, SEARCH_NEW, on_found, &seeking, &stuck),
			 0);
	ck_assert_uint_eq(atomic_load(&looked), 4);
}
END_TEST

static int note_thread(struct bounded *bounded, void *arg)
{
	(void)bounded;
	*(pid_t *)arg = gettid();
	return 0;
}

static void forget_nothing(void *arg)
{
	(void)arg;
}

/* A thread that has looked looks again; one that may leave something behind on it does nothing else. */
START_TEST(looks_share_a_thread)
{
	pid_t first = 0, next = 0, own = 0, stuck;
	int rc;

	ck_assert(bounded_look(note_thread, &first, forget_nothing, &rc, &stuck));
	for (int i = 0; i < 100 && next != first; i++) { /* it may not wait for more yet */
		usleep(1000);
		ck_assert(bounded_look(note_thread, &next, forget_nothing, &rc, &stuck));
	}
	ck_assert_int_eq(next, first);
	ck_assert(bounded_run(note_thread, &own, forget_nothing, &rc, &stuck));
	ck_assert_int_ne(own, first);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("search");
	Suite *s = suite_create("search");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, callers_that_come_meanwhile_share_the_next_look);
	tcase_add_test(tc, a_look_that_is_new_enough_is_taken_again);
	tcase_add_test(tc, looks_share_a_thread);
	suite_add_tcase(s, tc);
	return run_suite(s);
}
