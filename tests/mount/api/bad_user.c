/*
 * A program that uses libramp while daemons are killed, and across fork and exec.
 *
 *	bad_user storm MOUNT OTHER-NODE MS
 *		makes every call again and again for that time; after each the segment's words are what
 *		was stored last
 *	bad_user threads MOUNT OTHER-NODE
 *		four threads make the calls on one mount, each on a segment of its own and on one that
 *		all of them have
 *	bad_user exec MOUNT OTHER-NODE
 *		a child puts what its parent has connected, and the parent moves it; then the process
 *		executes itself with a receiver armed and a segment connected, of which nothing is left
 *	bad_user never MOUNT
 *		receives what is never sent
 *	bad_user twins MOUNT
 *		two threads receive by one watch, and one by another that matches the same: says "armed";
 *		one of the two has it
 *	bad_user back MOUNT PATTERN NODE
 *		receives a segment, and moves it there in steps before its arrival is committed
 *	bad_user listen MOUNT NODE ASKED
 *		says "open"; after a line of its input it can watch, and the second time not: the daemon
 *		is of an older version, and moves nothing to the node. The file ASKED has a line for each
 *		connection to that daemon
 *	bad_user table MOUNT
 *		says "open": after a line of its input the table of segments is torn; then "torn": the table
 *		shows a long state, and the address of this node begins with "here"
 *	bad_user renamed MOUNT
 *		finds a segment by its number while another thread renames it
 *	bad_user version MOUNT NODE WORDS
 *		every call that asks the daemon is refused with these words
 *
 * Exit status 0: all was as it must be.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user.h"

static uint64_t now_ms(void)
{
	return now_us() / 1000;
}

/* ---- the daemon is killed under every call --------------------------------------------------- */

static struct ramp_cluster *ramp;
static const char *other;
static volatile uint64_t *words;

static bool is_at(struct ramp_segment *s, const char *node)
{
	struct ramp_info info;

	CHECK(ramp_stat(s, &info) == 0);
	return strcmp(info.node, node) == 0 && !info.target[0] && !strcmp(info.state, "stable");
}

/* Waits until it has settled there. A move that no daemon could tell the end of may have stopped before:
   then it is asked for again. */
static void settle_at(struct ramp_segment *s, const char *node)
{
	uint64_t until = now_ms() + 60000;
	int rc;

	while (!is_at(s, node)) {
		CHECK(now_ms() < until);
		rc = ramp_migrate(s, node, &(struct ramp_move_options){.wait_whole = 1});
		CHECK(rc == 0 || rc == -EBUSY || rc == -EINPROGRESS || rc == -EROFS ||
		      rc == -EHOSTUNREACH);
		usleep(2000);
	}
}

static void in_steps(struct ramp_segment *s, int how)
{
	int rc = ramp_connect(s, other, NULL);

	if (!rc && how == 0)
		CHECK(ramp_extend(s, 20000) > 0 || ramp_error()[0]);
	if (!rc && how != 1)
		rc = ramp_prepare(s);
	if (!rc && how != 2)
		rc = ramp_transfer(s);
	CHECK(rc == 0 || rc == -EBUSY || rc == -EINPROGRESS || rc == -EROFS || rc == -EHOSTUNREACH);
	rc = ramp_abort(s);
	CHECK(rc == 0 || rc == -ENOTCONN || rc == -EALREADY || rc == -EINPROGRESS);
}

/* Arms a receiver. The daemon may not have heard of the end of the one before yet. */
static struct ramp_watch *armed(void)
{
	uint64_t until = now_ms() + 20000;
	struct ramp_watch *watch;
	int rc;

	while ((rc = ramp_watch_begin(ramp, &(struct ramp_watch_options){.receive = 1}, &watch)) ==
	       -EBUSY)
		CHECK(now_ms() < until);
	CHECK(rc == 0);
	return watch;
}

/* Returns whether it is the segment of that name. */
static int is_named(void *name, const struct ramp_info *info)
{
	return strcmp(info->name, name) == 0;
}

/* Calls of which none may fail at all: their requests are sent again to the next daemon. */
static void never_fails(int round)
{
	struct ramp_segment *s, *again;
	struct ramp_cluster *opened;
	struct ramp_last_move last;
	struct ramp_watch *watch;
	struct ramp_info info;
	struct ramp_alloc what = {.name = "storm", .size = 2 * MIB, .extent = 64 * MIB};
	char none[] = "none";
	int rc;

	CHECK(ramp_alloc(ramp, &what, &s) == 0);
	words = ramp_data(s);
	CHECK(words[0] == 0);
	words[0] = (uint64_t)round;
	CHECK(ramp_resize(s, 3 * MIB) == 0 && ramp_size(s) == 3 * MIB);
	CHECK(ramp_stat(s, &info) == 0 && info.id == ramp_id(s));
	CHECK(ramp_get(ramp, "storm", 0, &again) == 0 && ramp_data(again) == ramp_data(s));
	ramp_put(again);
	CHECK(ramp_get_id(ramp, ramp_id(s), 0, &again) == 0);
	ramp_put(s);
	CHECK(words[0] == (uint64_t)round);
	CHECK(ramp_open(ramp_mount(ramp), &opened) == 0);
	CHECK(ramp_list(opened, ramp_node(ramp), is_named, none) == 0);
	ramp_close(opened);
	CHECK(ramp_last_move(ramp, ramp_id(again), &last) == -ENODATA);
	CHECK(ramp_pull(again, 0, 0, 20000) == 0 && ramp_hint(again, 0, 0) == 0);
	CHECK(ramp_give_up_rest(again, RAMP_ZEROS) == 0 && words[0] == (uint64_t)round);
	watch = armed();
	rc = ramp_quiesced(watch, ramp_id(again));
	CHECK(rc == 0 || rc == -ESTALE);
	CHECK(ramp_receive(watch, 1, 0, &s) < 0);
	ramp_watch_end(watch);
	ramp_put(again);
	CHECK(ramp_free(ramp, NULL, "storm") == 0);
}

static void storm(const char *mount, const char *node, uint64_t ms)
{
	struct ramp_alloc what = {.name = "stays", .size = 2 * MIB, .extent = 64 * MIB};
	uint64_t until = now_ms() + ms;
	struct ramp_segment *s;
	int rounds = 0;

	other = node;
	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_alloc(ramp, &what, &s) == 0);
	for (; now_ms() < until || rounds < 3; rounds++) {
		volatile uint64_t *stays = ramp_data(s);

		never_fails(rounds);
		stays[rounds % 1000] = (uint64_t)rounds;
		in_steps(s, rounds % 3);
		settle_at(s, other);
		CHECK(load(stays) == -1);
		settle_at(s, ramp_node(ramp));
		CHECK(load(stays + rounds % 1000) == rounds);
	}
	ramp_put(s);
	CHECK(ramp_get(ramp, "stays", 0, &s) == 0);
	words = ramp_data(s);
	for (int i = 0; i < rounds && rounds <= 1000; i++)
		CHECK(words[i] == (uint64_t)i);
	ramp_put(s);
	CHECK(ramp_free(ramp, NULL, "stays") == 0);
	ramp_close(ramp);
	printf("%d rounds\n", rounds);
}

/* ---- fork and exec --------------------------------------------------------------------------- */

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", "..", its own */
}

static struct ramp_segment *connected(const char *name)
{
	struct ramp_segment *s;
	struct ramp_alloc what = {.name = name, .size = MIB};

	CHECK(ramp_alloc(ramp, &what, &s) == 0);
	*(volatile uint64_t *)ramp_data(s) = 4711;
	CHECK(ramp_connect(s, other, NULL) == 0);
	return s;
}

static void before_exec(const char *self, const char *mount, const char *node)
{
	struct ramp_segment *s;
	char files[16];
	int status;
	pid_t child;

	other = node;
	snprintf(files, sizeof(files), "%d", open_files());
	CHECK(ramp_open(mount, &ramp) == 0);
	s = connected("forked");
	child = fork();
	if (child == 0) {
		CHECK(*(volatile uint64_t *)ramp_data(s) == 4711);
		ramp_put(s);
		ramp_close(ramp);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	child = fork();
	if (child == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(ramp_prepare(s) == 0 && ramp_transfer(s) == 0);
	settle_at(s, other);
	settle_at(s, ramp_node(ramp));
	CHECK(*(volatile uint64_t *)ramp_data(s) == 4711);
	connected("executed");
	armed();
	execl(self, self, "after", mount, node, files, NULL);
	fail("exec");
}

static bool maps_a_segment(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	bool found = false;

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "/store/") ||
			 strtoull(line, NULL, 16) >> 44 == 2; /* the arena */
	fclose(maps);
	return found;
}

/* The daemon hears of the end of what the process had when the kernel has closed it. */
static void after_exec(const char *mount, const char *node, int files)
{
	struct ramp_segment *s;

	other = node;
	CHECK(open_files() == files);
	CHECK(!maps_a_segment());
	CHECK(ramp_open(mount, &ramp) == 0);
	ramp_watch_end(armed());
	CHECK(ramp_get(ramp, "executed", 0, &s) == 0);
	CHECK(*(volatile uint64_t *)ramp_data(s) == 4711);
	settle_at(s, other);
	CHECK(load(ramp_data(s)) == -1);
	ramp_put(s);
	CHECK(ramp_free(ramp, other, "executed") == 0 && ramp_free(ramp, NULL, "forked") == 0);
	ramp_close(ramp);
}

/* ---- threads --------------------------------------------------------------------------------- */

#define THREADS 4

static struct ramp_segment *shared;

static void *calls_of_a_thread(void *arg)
{
	struct ramp_segment *s, *also;
	struct ramp_info info;
	struct ramp_alloc what = {.name = arg, .size = MIB};
	int rc;

	for (int i = 0; i < 30; i++) {
		CHECK(ramp_alloc(ramp, &what, &s) == 0 && !ramp_error()[0]);
		((volatile uint64_t *)ramp_data(s))[i] = 1;
		CHECK(ramp_get(ramp, "shared", 0, &also) == 0);
		CHECK(ramp_data(also) == ramp_data(shared));
		ramp_put(also);
		CHECK(ramp_get(ramp, "none", 0, &also) == -ENOENT && !also);
		CHECK(strstr(ramp_error(), "none"));
		CHECK(ramp_list(ramp, NULL, is_named, arg) == 1);
		CHECK(ramp_stat(shared, &info) == 0 && strcmp(info.name, "shared") == 0);
		CHECK(ramp_pull(shared, 0, 0, 20000) == 0);
		/* One of them has it connected. */
		rc = ramp_connect(shared, other, NULL);
		CHECK(rc == 0 || rc == -EISCONN || rc == -EBUSY || rc == -EINTR);
		rc = ramp_abort(shared);
		CHECK(rc == 0 || rc == -ENOTCONN);
		ramp_put(s);
		CHECK(ramp_free(ramp, NULL, arg) == 0);
		((volatile uint64_t *)ramp_data(shared))[0]++;
	}
	return NULL;
}

static void threads(const char *mount, const char *node)
{
	static char names[THREADS][2] = {"0", "1", "2", "3"};
	struct ramp_alloc what = {.name = "shared", .size = MIB};
	pthread_t thread[THREADS];

	other = node;
	CHECK(ramp_open(mount, &ramp) == 0 && ramp_alloc(ramp, &what, &shared) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, calls_of_a_thread, names[i]) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ramp_put(shared);
	CHECK(!maps_a_segment());
	CHECK(ramp_free(ramp, NULL, "shared") == 0);
	ramp_close(ramp);
}

/* ---- receivers ------------------------------------------------------------------------------- */

static void never(const char *mount)
{
	struct ramp_watch_options of_id = {.id = UINT64_C(1) << 40, .receive = 1};
	struct ramp_watch *watch;
	struct ramp_segment *s;
	uint64_t since;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_watch_begin(ramp, &of_id, &watch) == 0);
	since = now_ms();
	CHECK(ramp_receive(watch, 300, 0, &s) == -ETIMEDOUT && !s && ramp_error()[0]);
	CHECK(now_ms() - since >= 299);
	CHECK(ramp_receive(watch, 0, RAMP_READ_ONLY, &s) == -ETIMEDOUT && !s);
	ramp_watch_end(watch);
	ramp_close(ramp);
}

static struct ramp_watch *first;
static _Atomic int received;

static void *twin(void *arg)
{
	struct ramp_segment *s;
	int rc = ramp_receive(first, 60000, 0, &s);

	(void)arg;
	CHECK(rc == 0 && *(volatile char *)ramp_data(s) == 'x');
	atomic_fetch_add(&received, 1);
	ramp_put(s);
	return NULL;
}

static void twins(const char *mount)
{
	struct ramp_watch_options of_name = {.pattern = "tw*", .receive = 1};
	struct ramp_watch_options of_all = {.receive = 1};
	struct ramp_watch *second;
	struct ramp_segment *s;
	pthread_t threads[2];

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_watch_begin(ramp, &of_name, &first) == 0);
	CHECK(ramp_watch_begin(ramp, &of_all, &second) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, twin, NULL) == 0);
	say("armed");
	while (atomic_load(&received) < 2)
		usleep(1000);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(ramp_receive(second, 200, 0, &s) == -ETIMEDOUT);
	ramp_watch_end(first);
	/* Arrivals that the first one matches no more are for the second. */
	say("ended");
	CHECK(ramp_receive(second, 60000, 0, &s) == 0);
	ramp_put(s);
	ramp_watch_end(second);
	ramp_close(ramp);
}

static void back(const char *mount, const char *pattern, const char *node)
{
	struct ramp_watch_options options = {.pattern = pattern, .receive = 1};
	struct ramp_watch *watch;
	struct ramp_segment *s;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_watch_begin(ramp, &options, &watch) == 0);
	say("armed");
	CHECK(ramp_receive(watch, 60000, 0, &s) == 0);
	CHECK(load(ramp_data(s)) != -1);
	CHECK(ramp_connect(s, node, NULL) == 0 && ramp_transfer(s) == 0);
	CHECK(load(ramp_data(s)) == -1);
	ramp_put(s);
	ramp_watch_end(watch);
	ramp_close(ramp);
}

/* ---- the table of segments ------------------------------------------------------------------- */

static void table(const char *mount)
{
	struct ramp_segment *s, *got;
	struct ramp_cluster *again;
	struct ramp_info info;
	char none[] = "none";

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_get(ramp, "old", 0, &s) == 0);
	say_and_wait("open");
	CHECK(ramp_stat(s, &info) == -EIO && ramp_error()[0]);
	CHECK(ramp_get_id(ramp, ramp_id(s), 0, &got) == -EIO && !got);
	CHECK(ramp_get(ramp, none, 0, &got) == -EIO && !got);
	CHECK(ramp_list(ramp, NULL, is_named, none) == -EIO);
	say_and_wait("torn");
	CHECK(ramp_stat(s, &info) == 0 && info.id == ramp_id(s));
	CHECK(strcmp(info.state, "writes closed") == 0);
	CHECK(ramp_open(mount, &again) == 0);
	CHECK(strcmp(ramp_node(again), ramp_node(ramp)) == 0);
	ramp_close(again);
	ramp_put(s);
	ramp_close(ramp);
}

static _Atomic bool renamed_enough;

static void *renames(void *dir)
{
	char from[512], to[512];

	for (int i = 0; !atomic_load(&renamed_enough); i++) {
		snprintf(from, sizeof(from), "%s/renamed%d", (char *)dir, i % 2);
		snprintf(to, sizeof(to), "%s/renamed%d", (char *)dir, 1 - i % 2);
		CHECK(rename(from, to) == 0);
	}
	return NULL;
}

static void renamed(const char *mount)
{
	struct ramp_alloc what = {.name = "renamed0", .size = MIB};
	struct ramp_segment *s, *got;
	pthread_t thread;
	char dir[256];

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_alloc(ramp, &what, &s) == 0);
	snprintf(dir, sizeof(dir), "%s/%s", mount, ramp_node(ramp));
	CHECK(pthread_create(&thread, NULL, renames, dir) == 0);
	for (int i = 0; i < 300; i++) {
		CHECK(ramp_get_id(ramp, ramp_id(s), 0, &got) == 0);
		CHECK(ramp_data(got) == ramp_data(s));
		ramp_put(got);
	}
	atomic_store(&renamed_enough, true);
	pthread_join(thread, NULL);
	ramp_put(s);
	CHECK(ramp_free(ramp, NULL, "renamed0") == 0 || ramp_free(ramp, NULL, "renamed1") == 0);
	ramp_close(ramp);
}

/* ---- another version ------------------------------------------------------------------------- */

static void version(const char *mount, const char *node, const char *said)
{
	struct ramp_watch *watch;
	struct ramp_segment *s = NULL;
	struct ramp_pulling *pulling;
	struct ramp_move *move;

	CHECK(ramp_open(mount, &ramp) == 0);
	CHECK(ramp_get(ramp, "old", 0, &s) == 0);
	say_and_wait("mapped");
	CHECK(ramp_migrate(s, node, NULL) == -EPROTO && strstr(ramp_error(), said));
	CHECK(ramp_move_begin(ramp, ramp_id(s), node, NULL, &move) == 0);
	CHECK(ramp_move_end(move) == -EPROTO);
	CHECK(ramp_connect(s, node, NULL) == -EPROTO && strstr(ramp_error(), said));
	CHECK(ramp_watch_begin(ramp, NULL, &watch) == -EPROTO && strstr(ramp_error(), said));
	CHECK(!watch);
	CHECK(ramp_pull(s, 0, 0, -1) == -EPROTO && strstr(ramp_error(), said));
	CHECK(ramp_pull_begin(s, 0, 0, &pulling) == 0 && ramp_pull_wait(pulling, -1) == -EPROTO);
	ramp_pull_end(pulling);
	CHECK(ramp_give_up_rest(s, 0) == -EPROTO && strstr(ramp_error(), said));
	*(volatile uint64_t *)ramp_data(s) = 1; /* it stays mapped */
	ramp_put(s);
	CHECK(ramp_get(ramp, "old", 0, &s) < 0 && ramp_error()[0]);
	puts(ramp_error());
	ramp_close(ramp);
}

static int lines_of(const char *path)
{
	FILE *file = fopen(path, "r");
	int c, lines = 0;

	CHECK(file);
	while ((c = getc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

/* A rest follows each connection on which nothing has come. */
#define IN_A_SECOND 15

static void moves_nothing(const char *node, const char *asked)
{
	struct ramp_move_options bounded = {.mode = RAMP_PRECOPY, .max_rounds = 3};
	struct ramp_move_event event;
	struct ramp_move *move;
	int before = lines_of(asked);

	CHECK(ramp_move_begin(ramp, UINT64_C(1) << 40, node, NULL, &move) == 0);
	CHECK(ramp_move_next(move, 1000, &event) == -ETIMEDOUT);
	CHECK(lines_of(asked) - before <= IN_A_SECOND);
	CHECK(ramp_move_cancel(move) == 0);
	CHECK(ramp_move_end(move) == -EINPROGRESS);
	CHECK(ramp_move_begin(ramp, UINT64_C(1) << 40, node, &bounded, &move) == 0);
	CHECK(ramp_move_end(move) == -ENOTSUP && strstr(ramp_error(), "older version"));
}

static void listens(const char *mount, const char *node, const char *asked)
{
	struct ramp_watch *watch;
	struct ramp_event event;
	int before;

	CHECK(ramp_open(mount, &ramp) == 0);
	say_and_wait("open");
	CHECK(ramp_watch_begin(ramp, NULL, &watch) == 0);
	before = lines_of(asked);
	CHECK(ramp_watch_next(watch, 1000, &event) == -ETIMEDOUT);
	CHECK(lines_of(asked) - before <= IN_A_SECOND);
	ramp_watch_end(watch);
	CHECK(ramp_watch_begin(ramp, NULL, &watch) == -EOPNOTSUPP && !watch);
	CHECK(strstr(ramp_error(), "older version"));
	moves_nothing(node, asked);
	ramp_close(ramp);
}

int main(int argc, char **argv)
{
	catch_bus();
	if (argc == 5 && !strcmp(argv[1], "storm"))
		storm(argv[2], argv[3], strtoull(argv[4], NULL, 10));
	else if (argc == 4 && !strcmp(argv[1], "threads"))
		threads(argv[2], argv[3]);
	else if (argc == 4 && !strcmp(argv[1], "exec"))
		before_exec(argv[0], argv[2], argv[3]);
	else if (argc == 5 && !strcmp(argv[1], "after"))
		after_exec(argv[2], argv[3], atoi(argv[4]));
	else if (argc == 3 && !strcmp(argv[1], "never"))
		never(argv[2]);
	else if (argc == 3 && !strcmp(argv[1], "twins"))
		twins(argv[2]);
	else if (argc == 5 && !strcmp(argv[1], "back"))
		back(argv[2], argv[3], argv[4]);
	else if (argc == 3 && !strcmp(argv[1], "table"))
		table(argv[2]);
	else if (argc == 3 && !strcmp(argv[1], "renamed"))
		renamed(argv[2]);
	else if (argc == 5 && !strcmp(argv[1], "listen"))
		listens(argv[2], argv[3], argv[4]);
	else if (argc == 5 && !strcmp(argv[1], "version"))
		version(argv[2], argv[3], argv[4]);
	else
		return fprintf(stderr, "bad_user: see bad_user.c\n"), 2;
	return 0;
}
