/*
 * A program that uses libramp, with or without the shim.
 *
 *	api_user life MOUNT OTHER-MOUNT OTHER-NODE
 *		allocates, stores, grows, lists, moves away and back, is refused what it must be,
 *		and deallocates
 *	api_user both MOUNT FILE
 *		maps FILE by mmap(2) and by the library: it is one mapping, which stays until the last
 *		of both is gone
 *	api_user fork MOUNT
 *		a child has its parent's segment, and what both store
 *	api_user moves MOUNT OTHER-NODE ROUNDS
 *		moves a segment there and back while a thread of it stores; its last store is there
 *	api_user cancel MOUNT ID NODE
 *		asks for a copy of segment ID to NODE, says "progress" when it sees some, and cancels
 *		it after a line of its input
 *	api_user wait MOUNT ID NODE
 *		the same, but waits for its end
 *
 *	api_user receive MOUNT COUNT
 *		receives COUNT segments named cache*, loads their first words, says "NAME FROM WORD"
 *		of each, and waits until each is whole; a second receiver of the same is refused
 *	api_user hears MOUNT COUNT
 *		says the COUNT events that it hears of at MOUNT, each as "KIND NAME NODE"
 *
 * Exit status 0: all was as it must be.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user.h"

struct seen {
	uint64_t id;
	int n, named;
	struct ramp_info info;
};

static int see(void *arg, const struct ramp_info *info)
{
	struct seen *seen = arg;

	seen->n++;
	if (info->id == seen->id) {
		seen->named++;
		seen->info = *info;
	}
	return 0;
}

static int stop_at_first(void *arg, const struct ramp_info *info)
{
	(void)arg;
	(void)info;
	return 7;
}

static void refusals(struct ramp_cluster *ramp)
{
	struct ramp_segment *s = (void *)ramp;
	struct ramp_watch *watch;
	char too_long[RAMP_API_NAME_MAX + 2];
	struct ramp_move *move;
	struct ramp_cluster *other;

	memset(too_long, '*', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = '\0';
	CHECK(ramp_open("/proc", &other) == -ENOTTY && !other);
	CHECK(strstr(ramp_error(), "is not a rampfs mount"));
	CHECK(ramp_open("/nowhere", &other) == -ENOENT && !other);
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.size = 1}, &s) == -EINVAL && !s);
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.name = "a/b", .size = 1}, &s) == -EINVAL);
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.name = "n"}, &s) == -EINVAL);
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.name = "n", .size = MIB, .extent = 1}, &s) ==
	      -EINVAL);
	/* Above the arena, and it leaves no file behind. */
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.name = "n", .size = 1, .extent = 1ull << 60},
			 &s) < 0);
	CHECK(ramp_get(ramp, "n", 0, &s) == -ENOENT && !s);
	CHECK(ramp_get(ramp, "..", 0, &s) == -EINVAL);
	CHECK(ramp_get_id(ramp, 99999999, 0, &s) == -ENOENT);
	CHECK(ramp_free(ramp, NULL, "n") == -ENOENT);
	CHECK(ramp_free(ramp, "nowhere", "n") == -ENOENT);
	CHECK(ramp_list(ramp, "nowhere", see, NULL) == -ENOENT);
	CHECK(ramp_move_begin(ramp, 1, "", NULL, &move) == -EINVAL && !move);
	CHECK(ramp_watch_begin(ramp, &(struct ramp_watch_options){.pattern = too_long}, &watch) ==
		      -EINVAL &&
	      !watch);
	CHECK(ramp_move_begin(ramp, 1, "b", &(struct ramp_move_options){.max_rounds = -1}, &move) ==
	      -EINVAL);
	CHECK(ramp_move_begin(ramp, 1, "b", &(struct ramp_move_options){.max_rounds = 101},
			      &move) == -EINVAL);
	CHECK(ramp_move_begin(ramp, 1, "b", &(struct ramp_move_options){.mode = 9}, &move) ==
	      -EINVAL);
	CHECK(ramp_error()[0]);
}

/* Waits until this node knows that size of a segment that is elsewhere. */
static void await_size(const struct ramp_segment *s, uint64_t size)
{
	for (int i = 0; ramp_size(s) != (int64_t)size; i++) {
		CHECK(ramp_size(s) > 0 && i < 20000);
		usleep(1000);
	}
}

static void life(const char *mount, const char *other_mount, const char *other)
{
	struct ramp_alloc what = {
		.name = "back\\slash", .size = 3 * MIB, .extent = 100 * MIB, .mode = 0640};
	struct ramp_segment *s, *again;
	struct seen seen = {0};
	struct ramp_info info;
	struct ramp_cluster *ramp, *elsewhere;
	volatile uint64_t *words;
	uint64_t len;

	CHECK(ramp_open(mount, &ramp) == 0 && !ramp_error()[0]);
	CHECK(ramp_open(other_mount, &elsewhere) == 0);
	CHECK(strcmp(ramp_mount(ramp), mount) == 0 && strcmp(ramp_node(elsewhere), other) == 0);
	refusals(ramp);
	CHECK(ramp_alloc(ramp, &what, &s) == 0 && !ramp_error()[0]);
	CHECK(ramp_size(s) == 3 * MIB && ramp_extent(s) >= 128 * MIB);
	words = ramp_data(s);
	CHECK((char *)words >= (char *)ramp_arena(ramp, &len) &&
	      (char *)words + ramp_extent(s) <= (char *)ramp_arena(ramp, NULL) + len);
	CHECK(words[0] == 0 && load(words + 4 * MIB / 8) == -1);
	words[0] = 4711;
	CHECK(ramp_alloc(ramp, &what, &again) == -EEXIST && !again);
	CHECK(ramp_resize(s, 5 * MIB) == 0 && load(words + 4 * MIB / 8) == 0);
	CHECK(ramp_resize(s, ramp_extent(s) + 1) == -EFBIG);

	/* The same mapping, once more, read-only: it takes no access away. */
	CHECK(ramp_get_id(ramp, ramp_id(s), RAMP_READ_ONLY, &again) == 0);
	CHECK(ramp_data(again) == ramp_data(s));
	words[0]++;
	ramp_put(again);
	CHECK(load(words) == 4712);

	seen.id = ramp_id(s);
	CHECK(ramp_list(ramp, ramp_node(ramp), see, &seen) == 0 && seen.named == 1);
	CHECK(strcmp(seen.info.name, what.name) == 0 && seen.info.size == 5 * MIB);
	CHECK(seen.info.addr == (uintptr_t)words && seen.info.extent == ramp_extent(s));
	CHECK(!seen.info.target[0] && !seen.info.source[0] &&
	      strcmp(seen.info.state, "stable") == 0);
	CHECK(ramp_list(ramp, NULL, stop_at_first, NULL) == 7);
	CHECK(ramp_stat(s, &info) == 0 && info.id == ramp_id(s));
	seen.n = 0;
	CHECK(ramp_list(ramp, other, see, &seen) == 0 && seen.n == 0);

	CHECK(ramp_migrate(s, "nowhere", NULL) == -ENOENT && ramp_error()[0]);
	CHECK(ramp_migrate(s, other,
			   &(struct ramp_move_options){.wait_whole = 1, .new_name = "x"}) == 0);
	CHECK(load(words) == -1);
	await_size(s, 5 * MIB);
	CHECK(ramp_resize(s, MIB) == -EREMOTE && strstr(ramp_error(), other));
	CHECK(ramp_resize(s, ramp_extent(s) + 1) == -EFBIG);
	CHECK(ramp_get(ramp, "x", 0, &again) == -EREMOTE && strstr(ramp_error(), other));
	CHECK(ramp_stat(s, &info) == 0 && strcmp(info.node, other) == 0 &&
	      strcmp(info.name, "x") == 0);
	CHECK(ramp_migrate(s, ramp_node(ramp), NULL) == 0);
	CHECK(load(words) == 4712 && ramp_size(s) == 5 * MIB);
	words[1] = 5;

	CHECK(ramp_free(ramp, NULL, "x") == 0);
	CHECK(load(words) == 4712 && words[1] == 5 && ramp_stat(s, &info) == -ENOENT);
	ramp_close(ramp); /* the segment keeps what it needs */
	CHECK(ramp_size(s) == 5 * MIB);
	ramp_put(s);
	ramp_close(elsewhere);
	ramp_put(NULL);
	ramp_close(NULL);
	CHECK(ramp_move_end(NULL) == 0);
}

static bool is_mapped(void *at)
{
	unsigned char vec;

	return mincore(at, 4096, &vec) == 0;
}

/* Returns how many agents this process has. */
static int agents(void)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[300], name[32];
	struct dirent *task;
	int n = 0;

	CHECK(tasks);
	while ((task = readdir(tasks))) {
		FILE *comm;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		comm = fopen(path, "r");
		if (!comm)
			continue;
		n += fgets(name, sizeof(name), comm) && strcmp(name, "rampfs-agent\n") == 0;
		fclose(comm);
	}
	closedir(tasks);
	return n;
}

static void both(const char *mount, const char *file)
{
	const char *name = strrchr(file, '/') + 1;
	int fd = open(file, O_RDWR);
	volatile uint64_t *words = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct ramp_segment *s = NULL;
	struct ramp_cluster *ramp;

	CHECK(words != MAP_FAILED);
	CHECK(ramp_open(mount, &ramp) == 0 && ramp_get(ramp, name, 0, &s) == 0);
	CHECK(ramp_data(s) == words && agents() == 1);
	words[0] = 1;
	CHECK(*(volatile uint64_t *)ramp_data(s) == 1);
	CHECK(munmap((void *)words, MIB) == 0 && load(words) == 1);
	ramp_put(s);
	CHECK(!is_mapped((void *)words));
	CHECK(ramp_get(ramp, name, 0, &s) == 0);
	CHECK(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == words);
	ramp_put(s);
	CHECK(load(words) == 1);
	ramp_close(ramp);
}

static void forks(const char *mount)
{
	struct ramp_segment *s, *again;
	_Atomic uint64_t *words;
	struct ramp_cluster *ramp;
	int status;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.name = "forked", .size = MIB}, &s) == 0);
	words = ramp_data(s);
	words[0] = 1;
	for (int i = 0; i < 5; i++) {
		pid_t child = fork();

		if (child == 0) {
			CHECK(words[0] == (uint64_t)i + 1);
			words[0]++;
			CHECK(ramp_get(ramp, "forked", 0, &again) == 0 &&
			      ramp_data(again) == words);
			ramp_put(again);
			ramp_put(s);
			CHECK(!is_mapped((void *)words));
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(words[0] == (uint64_t)i + 2);
	}
	ramp_put(s);
	CHECK(ramp_free(ramp, NULL, "forked") == 0);
	ramp_close(ramp);
}

static _Atomic bool stop;
static _Atomic uint64_t stored;

/* Stores ever larger numbers; where the segment is away it tries again. */
static void *storer(void *arg)
{
	volatile uint64_t *word = arg;

	while (!stop)
		if (sigsetjmp(out_of_touch, 1) == 0)
			for (; !stop; stored++)
				*word = stored + 1;
		else
			usleep(1000);
	return NULL;
}

static void moves(const char *mount, const char *other, int rounds)
{
	struct ramp_segment *s;
	volatile uint64_t *words;
	struct ramp_cluster *ramp;
	pthread_t thread;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_alloc(ramp, &(struct ramp_alloc){.name = "moved", .size = 8 * MIB}, &s) == 0);
	words = ramp_data(s);
	CHECK(pthread_create(&thread, NULL, storer, (void *)words) == 0);
	for (int i = 0; i < rounds; i++) {
		uint64_t before = stored;

		CHECK(ramp_migrate(s, other, NULL) == 0);
		CHECK(ramp_migrate(s, ramp_node(ramp), NULL) == 0);
		while (stored == before)
			usleep(1000);
	}
	stop = true;
	pthread_join(thread, NULL);
	CHECK(words[0] == stored || words[0] == stored + 1);
	ramp_put(s);
	CHECK(ramp_free(ramp, NULL, "moved") == 0);
	ramp_close(ramp);
}

static void copy(const char *mount, uint64_t id, const char *node, bool cancel)
{
	struct ramp_move_options options = {.mode = RAMP_COPY, .progress = 1};
	struct ramp_move_event event;
	struct ramp_move *move;
	struct ramp_cluster *ramp;
	struct pollfd at = {.events = POLLIN};
	int rc, seen = 0;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_move_begin(ramp, id, node, &options, &move) == 0);
	at.fd = ramp_move_fd(move);
	for (;;) {
		CHECK(poll(&at, 1, 60000) == 1);
		rc = ramp_move_next(move, 0, &event);
		if (rc == -ETIMEDOUT)
			continue;
		CHECK(rc == 0);
		if (event.ended)
			break;
		if (++seen == 1)
			say("progress");
		if (seen == 1 && cancel)
			CHECK(getchar() == '\n' && ramp_move_cancel(move) == 0);
	}
	CHECK(ramp_move_next(move, 0, &event) == -EALREADY);
	rc = ramp_move_end(move);
	if (cancel)
		CHECK(seen && rc == -EINTR);
	else
		CHECK(rc == 0);
	ramp_close(ramp);
}

/* The events that are no arrivals tell that it was whole: taken from a second watch. */
static void receive(const char *mount, int count)
{
	struct ramp_watch_options options = {.pattern = "cache*", .receive = 1}, all = {0};
	struct ramp_watch *receiver, *second, *others;
	struct ramp_segment *s[16];
	struct ramp_event event;
	struct ramp_info info;
	struct ramp_cluster *ramp;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_watch_begin(ramp, &options, &receiver) == 0);
	CHECK(ramp_watch_begin(ramp, &options, &second) == -EBUSY && !second);
	CHECK(ramp_watch_begin(ramp, &all, &others) == 0);
	CHECK(ramp_receive(receiver, 0, 0, &s[0]) == -ETIMEDOUT);
	CHECK(ramp_watch_next(others, 50, &event) == -ETIMEDOUT);
	say("armed");
	for (int i = 0; i < count; i++) {
		CHECK(ramp_receive(receiver, 60000, 0, &s[i]) == 0);
		CHECK(ramp_stat(s[i], &info) == 0 && strcmp(info.node, ramp_node(ramp)) == 0);
		printf("%s %d\n", info.name, *(volatile int *)ramp_data(s[i]));
		fflush(stdout);
	}
	for (int whole = 0; whole < count;) {
		CHECK(ramp_watch_next(others, 60000, &event) == 0);
		CHECK(event.kind == RAMP_ARRIVED || event.kind == RAMP_WHOLE);
		whole += event.kind == RAMP_WHOLE;
	}
	for (int i = 0; i < count; i++)
		ramp_put(s[i]);
	ramp_watch_end(receiver);
	ramp_watch_end(others);
	CHECK(ramp_watch_begin(ramp, &options, &second) == 0);
	ramp_watch_end(second);
	ramp_watch_end(NULL);
	ramp_close(ramp);
}

static void hears(const char *mount, int count)
{
	static const char *const kinds[] = {"", "arrived", "whole", "left", "missed"};
	struct ramp_watch *watch;
	struct ramp_event event;
	struct ramp_cluster *ramp;
	struct pollfd at = {.events = POLLIN};
	int rc;

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_watch_begin(ramp, NULL, &watch) == 0);
	at.fd = ramp_watch_fd(watch);
	say("hears");
	while (count) {
		CHECK(poll(&at, 1, 60000) == 1);
		rc = ramp_watch_next(watch, 0, &event);
		if (rc == -ETIMEDOUT)
			continue;
		CHECK(rc == 0);
		printf("%s %s %s\n", kinds[event.kind], event.name, event.node);
		fflush(stdout);
		count--;
	}
	ramp_watch_end(watch);
	ramp_close(ramp);
}

int main(int argc, char **argv)
{
	catch_bus();
	if (argc == 5 && !strcmp(argv[1], "life"))
		life(argv[2], argv[3], argv[4]);
	else if (argc == 4 && !strcmp(argv[1], "both"))
		both(argv[2], argv[3]);
	else if (argc == 3 && !strcmp(argv[1], "fork"))
		forks(argv[2]);
	else if (argc == 5 && !strcmp(argv[1], "moves"))
		moves(argv[2], argv[3], atoi(argv[4]));
	else if (argc == 5 && (!strcmp(argv[1], "cancel") || !strcmp(argv[1], "wait")))
		copy(argv[2], strtoull(argv[3], NULL, 10), argv[4], argv[1][0] == 'c');
	else if (argc == 4 && !strcmp(argv[1], "receive"))
		receive(argv[2], atoi(argv[3]));
	else if (argc == 4 && !strcmp(argv[1], "hears"))
		hears(argv[2], atoi(argv[3]));
	else
		return fprintf(stderr, "api_user: see api_user.c\n"), 2;
	return 0;
}
