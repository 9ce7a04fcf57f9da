/*
 * A program that is asked before a segment of it leaves.
 *
 *	depart_user MOUNT NAME HOW
 *		maps the segment, counts in its first two words, and says each event as "KIND NODE".
 *		A thread stores the two one after the other: they are equal between two operations.
 *		HOW: asked, ready: it lets go at that event; never: at none; missed: at ASKED, but only
 *		once it was told that it has missed something
 *	depart_user MOUNT NAME unmapped
 *		the same without mapping it
 *	depart_user MOUNT NAME steps
 *		as ready, and moves it to b itself, in steps; says "counted" where what the last
 *		hand-over has cost is no more than its calls took
 *	depart_user MOUNT NAME two|deaf|tries
 *		the same in two steps, "equal" where it was closed between two operations; deaf: it answers
 *		nothing; tries: its one thread tries to close it, and hears what is asked meanwhile
 *	depart_user MOUNT NAME heap
 *		makes a heap in it, and says what ramp_quiesced() says within and after a call of it
 *	depart_user MOUNT NAME last
 *		says what the last hand-over of the segment of that name was
 *	depart_user MOUNT - crowd
 *		begins watches until that is refused
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ramp_heap.h"
#include "user.h"

#define CROWD 1024 /* watches of one user */

static pthread_mutex_t between = PTHREAD_MUTEX_INITIALIZER; /* held within an operation */

static void *counter(void *arg)
{
	volatile uint64_t *words = arg;

	pthread_mutex_lock(&between);
	words[1] = words[0]; /* an earlier one was killed in the middle */
	pthread_mutex_unlock(&between);
	for (;;) {
		pthread_mutex_lock(&between);
		if (sigsetjmp(out_of_touch, 1) == 0) {
			words[0]++;
			usleep(100);
			words[1]++;
		}
		pthread_mutex_unlock(&between);
		usleep(100);
	}
	return NULL;
}

static const char *kind_name(enum ramp_event_kind kind)
{
	static const char *const names[] = {"",	      "arrived",    "whole",  "left",  "missed",
					    "asked",  "connecting", "ready",  "given", "settled",
					    "failed", "coming",	    "closed", "round"};

	return names[kind];
}

static void let_go(struct ramp_watch *watch, uint64_t id, bool *held)
{
	if (*held)
		return;
	pthread_mutex_lock(&between);
	*held = true;
	CHECK(ramp_quiesced(watch, id) == 0);
}

static void heed(struct ramp_watch *watch, const struct ramp_event *event, const char *how)
{
	static bool held, missed;

	missed |= event->kind == RAMP_MISSED;
	if (event->kind == RAMP_ASKED)
		CHECK(event->within_ms >= 1 && event->within_ms <= 4000);
	if (event->kind == RAMP_ROUND) /* it stores into one page */
		CHECK(event->left <= 1);
	printf("%s %s%s%s\n", kind_name(event->kind), event->node, event->why[0] ? ": " : "",
	       event->why);
	fflush(stdout);
	if (strcmp(how, kind_name(event->kind)) == 0 && !missed)
		let_go(watch, event->id, &held);
	if (strcmp(how, "missed") == 0 && missed && event->kind == RAMP_ASKED)
		let_go(watch, event->id, &held);
	if (held && event->kind == RAMP_FAILED) {
		pthread_mutex_unlock(&between);
		held = false;
	}
}

static void follow(struct ramp_watch *watch, const char *how)
{
	struct ramp_event event;

	for (;;) {
		CHECK(ramp_watch_next(watch, -1, &event) == 0);
		heed(watch, &event, how);
	}
}

static struct ramp_cluster *ramp;

/* Rests between its calls: that counts nowhere. */
static void *steps(void *arg)
{
	struct ramp_last_move m;
	uint64_t at[6];

	at[0] = now_us();
	CHECK(ramp_connect(arg, "b", NULL) == 0);
	at[1] = now_us();
	usleep(300000);
	at[2] = now_us();
	CHECK(ramp_prepare(arg) == 0);
	at[3] = now_us();
	usleep(300000);
	at[4] = now_us();
	CHECK(ramp_transfer(arg) == 0);
	at[5] = now_us();
	CHECK(ramp_last_move(ramp, ramp_id(arg), &m) == 0 && m.measured);
	CHECK(m.connect_us && m.connect_us <= at[1] - at[0]);
	CHECK(m.prepare_us && m.prepare_us <= at[3] - at[2]);
	CHECK(m.asked_us && m.window_us && m.asked_us + m.window_us <= at[5] - at[4]);
	CHECK(m.rounds_us == 0);
	say("counted");
	return NULL;
}

static struct ramp_watch *watch;
static uint64_t heap_id;

static void connect_ahead(struct ramp_segment *segment)
{
	struct ramp_move_options precopy = {.mode = RAMP_PRECOPY};

	CHECK(ramp_connect(segment, "b", &precopy) == 0);
}

/* It can be loaded between the two steps. */
static void hand_over_closed(struct ramp_segment *segment)
{
	const volatile uint64_t *words = ramp_data(segment);

	CHECK(words[0] == words[1]);
	say("equal");
	CHECK(ramp_finish_read(segment) == 0);
}

static void *two(void *arg)
{
	connect_ahead(arg);
	CHECK(ramp_finish_write(arg) == 0);
	hand_over_closed(arg);
	return NULL;
}

static void *deaf(void *arg)
{
	connect_ahead(arg);
	CHECK(ramp_finish_write(arg) == -EBUSY);
	CHECK(ramp_extend(arg, 0) == -ENOTCONN);
	say("busy");
	return NULL;
}

static void tries(struct ramp_segment *segment)
{
	struct ramp_event event;
	int rc;

	connect_ahead(segment);
	while ((rc = ramp_try_finish_write(segment)) == -EAGAIN)
		if (ramp_watch_next(watch, 1, &event) == 0)
			heed(watch, &event, "ready");
	CHECK(rc == 0);
	hand_over_closed(segment);
}

/* Moves it itself, in steps, while another thread answers. Returns at which event that does. */
static const char *moves_itself(const char *how, struct ramp_segment *segment)
{
	static const struct {
		const char *how;
		void *(*run)(void *segment);
		const char *at;
	} ways[] = {{"steps", steps, "ready"}, {"two", two, "ready"}, {"deaf", deaf, "never"}};
	pthread_t thread;

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (strcmp(how, ways[i].how) != 0)
			continue;
		CHECK(pthread_create(&thread, NULL, ways[i].run, segment) == 0);
		return ways[i].at;
	}
	return how;
}

static int grow(void *arg, uint64_t size)
{
	printf("within %d\n", ramp_quiesced(watch, heap_id));
	return ramp_resize(arg, size);
}

static void heap(struct ramp_segment *segment)
{
	struct ramp_heap_options options = {
		.max_bytes = ramp_extent(segment), .grow = grow, .arg = segment};
	struct ramp_heap_err err;
	struct ramp_heap *made;

	heap_id = ramp_id(segment);
	made = ramp_heap_format(ramp_data(segment), (uint64_t)ramp_size(segment), &options, &err);
	CHECK(made);
	CHECK(ramp_heap_malloc(made, 8 << 20));
	CHECK(!ramp_heap_in_call(made, 1));
	printf("after %d\n", ramp_quiesced(watch, heap_id));
	CHECK(ramp_heap_close(made) == 0);
}

struct named {
	const char *name;
	uint64_t id;
};

static int find(void *arg, const struct ramp_info *info)
{
	struct named *named = arg;

	if (strcmp(info->name, named->name) == 0)
		named->id = info->id;
	return named->id != 0;
}

static void last(const char *name)
{
	struct named named = {.name = name};
	struct ramp_last_move m;
	uint64_t here;
	int rc;

	CHECK(ramp_last_move(ramp, 99999999, &m) == -ENOENT);
	CHECK(ramp_list(ramp, NULL, find, &named) == 1);
	rc = ramp_last_move(ramp, named.id, &m);
	if (rc) {
		printf("%s\n", rc == -ENODATA ? "none" : ramp_error());
		return;
	}
	CHECK(m.at_ms > 1600000000000u);
	CHECK(!m.measured || (m.window_us && m.connect_us && m.prepare_us));
	here = m.demand_pages + m.prefetch_pages;
	printf("%s %s measured %d whole %d: %" PRIu64 " %" PRIu64 " %" PRIu64 " here, %" PRIu64
	       " holes, %" PRIu64 " local, %" PRIu64 " lost %s\n",
	       m.from, m.to, m.measured, m.whole, m.round_pages, m.window_pages, here, m.hole_pages,
	       m.local_pages, m.lost_pages, m.transport);
}

static void crowd(void)
{
	static struct ramp_watch *watches[CROWD + 1];
	struct rlimit files;
	int n = 0, rc;

	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
	files.rlim_cur = files.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	while ((rc = ramp_watch_begin(ramp, NULL, &watches[n])) == 0)
		CHECK(++n <= CROWD);
	CHECK(rc == -EUSERS && strstr(ramp_error(), "too many") && !watches[n]);
	ramp_watch_end(watches[--n]);
	do /* the daemon sees the hang-up a little later */
		rc = ramp_watch_begin(ramp, NULL, &watches[n]);
	while (rc == -EUSERS);
	CHECK(rc == 0);
	printf("crowd %d\n", n + 1);
}

int main(int argc, char **argv)
{
	struct ramp_watch_options options = {.asked = 1};
	struct ramp_segment *segment = NULL;
	const char *how;
	pthread_t thread;

	if (argc != 4)
		return fprintf(stderr, "depart_user: see depart_user.c\n"), 2;
	catch_bus();
	CHECK(ramp_open(argv[1], &ramp) == 0);
	if (strcmp(argv[3], "last") == 0)
		return last(argv[2]), 0;
	if (strcmp(argv[3], "crowd") == 0)
		return crowd(), 0;
	CHECK(ramp_watch_begin(ramp, &options, &watch) == 0);
	if (strcmp(argv[3], "unmapped") != 0)
		CHECK(ramp_get(ramp, argv[2], 0, &segment) == 0);
	say("hears");
	if (strcmp(argv[3], "heap") == 0)
		return heap(segment), 0;
	if (segment)
		CHECK(pthread_create(&thread, NULL, counter, ramp_data(segment)) == 0);
	how = moves_itself(argv[3], segment);
	if (strcmp(how, "tries") == 0)
		tries(segment);
	follow(watch, how);
}
