/*
 * A program that moves segments in steps.
 *
 *	steps_user walk MOUNT OTHER-MOUNT OTHER-NODE
 *		connects, extends, prepares, transfers, gives up and puts; is refused what it must be;
 *		loads and stores meanwhile
 *	steps_user hold MOUNT NAME NODE STEP
 *		maps the segment, connects it after a line of its input ("connect"; and prepares it:
 *		"prepare"), says "held", transfers it after a further line, and says what came of it,
 *		whether it is here, and the last number that was stored: a thread stores ever larger
 *		ones all the time
 *
 *	steps_user receive MOUNT PATTERN COUNT
 *		receives COUNT segments, and says of each its number and its first word, which it
 *		changes by -1
 *	steps_user fill MOUNT NAME MIB
 *		makes a segment whose words are their numbers
 *	steps_user pull MOUNT NAME
 *		pulls and hints at ranges of what `fill` made and is 8 MiB; says "hinted", and
 *		"waits", and continues after a line of its input each time: the first when its source
 *		is silent, the second when it is back
 *
 *	steps_user give_up MOUNT NAME lost|zeros
 *		pulls the first MiB of what `fill` made, gives the rest up, and looks at it
 *
 * Exit status 0: all was as it must be.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "user.h"

/* Waits until this node's tables show it there. */
static void shown_at(struct ramp_segment *s, const char *node)
{
	struct ramp_info info;

	for (int i = 0; i < 20000; i++) {
		CHECK(ramp_stat(s, &info) == 0);
		if (strcmp(info.node, node) == 0 && !info.target[0])
			return;
		usleep(1000);
	}
	fail("never shown there");
}

/* Tries for as long as something of an earlier move is left. */
static int connect_soon(struct ramp_segment *s, const char *node)
{
	int rc;

	for (int i = 0; i < 20000; i++) {
		rc = ramp_connect(s, node, NULL);
		if (rc != -EBUSY)
			return rc;
		usleep(1000);
	}
	return rc;
}

static void not_connected(struct ramp_segment *s)
{
	CHECK(ramp_prepare(s) == -ENOTCONN && ramp_error()[0]);
	CHECK(ramp_transfer(s) == -ENOTCONN && ramp_extend(s, 1000) == -ENOTCONN);
	CHECK(ramp_abort(s) == -ENOTCONN);
}

static void *aborts(void *segment)
{
	int rc;

	while ((rc = ramp_abort(segment)) == -ENOTCONN)
		usleep(100);
	CHECK(rc == 0);
	return NULL;
}

/* Another thread gives it up while this one connects, or waits connected. */
static void aborted(struct ramp_segment *s, const char *other)
{
	pthread_t thread;
	int rc;

	for (int i = 0; i < 20; i++) {
		CHECK(pthread_create(&thread, NULL, aborts, s) == 0);
		rc = connect_soon(s, other);
		CHECK(rc == 0 || rc == -EINTR);
		pthread_join(thread, NULL);
		not_connected(s);
	}
}

static void walk(const char *mount, const char *other_mount, const char *other)
{
	struct ramp_alloc what = {.name = "walked", .size = 4 * MIB};
	struct ramp_segment *s, *again;
	struct ramp_cluster *ramp, *elsewhere = NULL;
	volatile uint64_t *words;
	int ms;

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_open(other_mount, &elsewhere) == 0);
	CHECK(ramp_alloc(ramp, &what, &s) == 0);
	words = ramp_data(s);
	words[0] = 1;
	not_connected(s);
	CHECK(ramp_connect(s, "", NULL) == -EINVAL);
	CHECK(ramp_connect(s, "nowhere", NULL) == -ENOENT && strstr(ramp_error(), "nowhere"));
	CHECK(ramp_connect(s, ramp_node(ramp), NULL) == -EALREADY);
	not_connected(s);

	CHECK(ramp_connect(s, other, NULL) == 0 && !ramp_error()[0]);
	CHECK(ramp_connect(s, other, NULL) == -EISCONN);
	CHECK(ramp_migrate(s, other, NULL) == -EBUSY); /* another request for what is moving */
	ms = ramp_extend(s, 60000);
	CHECK(ms > 30000 && ms <= 60000);
	ms = ramp_extend(s, 3600000);
	CHECK(ms > 500000 && ms <= 600000);
	words[0]++;
	CHECK(ramp_abort(s) == 0 && load(words) == 2);
	not_connected(s);
	aborted(s, other);

	/* A put ends it. */
	CHECK(ramp_get_id(ramp, ramp_id(s), 0, &again) == 0);
	CHECK(connect_soon(again, other) == 0);
	CHECK(ramp_connect(s, other, NULL) == -EBUSY);
	ramp_put(again);
	CHECK(connect_soon(s, other) == 0);

	CHECK(ramp_prepare(s) == 0 && ramp_prepare(s) == 0);
	CHECK(ramp_extend(s, 1000) == -EBUSY);
	CHECK(ramp_free(ramp, NULL, what.name) == -EBUSY);
	words[0]++;
	words[MIB / 8] = 7;
	CHECK(ramp_transfer(s) == 0 && !ramp_error()[0]);
	CHECK(load(words) == -1);
	not_connected(s);
	shown_at(s, other);
	CHECK(ramp_connect(s, ramp_node(ramp), NULL) == -EREMOTE && strstr(ramp_error(), other));
	CHECK(ramp_migrate(s, ramp_node(ramp), NULL) == 0);
	CHECK(load(words) == 3 && load(words + MIB / 8) == 7);

	/* Without a prepare, by copy, with another name, and whole. */
	CHECK(ramp_connect(s, other,
			   &(struct ramp_move_options){
				   .mode = RAMP_COPY, .new_name = "y", .wait_whole = 1}) == 0);
	words[0]++;
	CHECK(ramp_transfer(s) == 0);
	CHECK(ramp_migrate(s, ramp_node(ramp), NULL) == 0 && load(words) == 4);
	ramp_put(s);
	CHECK(ramp_free(ramp, NULL, "y") == 0);
	ramp_close(ramp);
	ramp_close(elsewhere);
}

static _Atomic bool stop;
static _Atomic uint64_t stored;

static void *storer(void *arg)
{
	volatile uint64_t *word = arg;

	while (!stop) {
		if (sigsetjmp(out_of_touch, 1))
			return NULL; /* it has left */
		*word = stored + 1;
		stored++;
	}
	return NULL;
}

static void hold(const char *mount, const char *name, const char *node, bool prepare)
{
	struct ramp_segment *s = NULL;
	struct ramp_cluster *ramp;
	pthread_t thread;
	int rc;

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_get(ramp, name, 0, &s) == 0);
	CHECK(pthread_create(&thread, NULL, storer, ramp_data(s)) == 0);
	say_and_wait("mapped");
	rc = ramp_connect(s, node, NULL);
	if (!rc && prepare)
		rc = ramp_prepare(s);
	if (!rc) {
		say_and_wait("held");
		rc = ramp_transfer(s);
	}
	stop = true;
	pthread_join(thread, NULL);
	printf("%s, %s, %llu\n", rc ? ramp_error() : "taken",
	       load(ramp_data(s)) == -1 ? "gone" : "here", (unsigned long long)stored);
	ramp_put(s);
	ramp_close(ramp);
}

static void receive(const char *mount, const char *pattern, int count)
{
	struct ramp_watch_options options = {.pattern = pattern, .receive = 1};
	struct ramp_watch *watch = NULL;
	struct ramp_segment *s = NULL;
	struct ramp_cluster *ramp;
	volatile uint64_t *words;

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_watch_begin(ramp, &options, &watch) == 0);
	say("armed");
	for (int i = 0; i < count; i++) {
		CHECK(ramp_receive(watch, 60000, 0, &s) == 0);
		words = ramp_data(s);
		CHECK(load(words) != -1);
		printf("%llu %llu\n", (unsigned long long)ramp_id(s), (unsigned long long)words[0]);
		fflush(stdout);
		words[0]--;
		CHECK(ramp_size(s) == 8 * MIB);
		ramp_put(s);
	}
	ramp_watch_end(watch);
	ramp_close(ramp);
}

static void fill(const char *mount, const char *name, uint64_t mib)
{
	struct ramp_alloc what = {.name = name, .size = mib * MIB};
	struct ramp_segment *s = NULL;
	struct ramp_cluster *ramp;
	uint64_t *words;

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_alloc(ramp, &what, &s) == 0);
	words = ramp_data(s);
	for (uint64_t i = 0; i < mib * MIB / 8; i++)
		words[i] = i;
	ramp_put(s);
	ramp_close(ramp);
}

static void check_words(const uint64_t *words, uint64_t from, uint64_t bytes)
{
	for (uint64_t i = from / 8; i < (from + bytes) / 8; i++)
		CHECK(words[i] == i);
}

static void on_alarm(int signo)
{
	(void)signo;
}

static void pull_bad(struct ramp_segment *s)
{
	struct ramp_pulling *none;

	CHECK(ramp_pull(s, 1, UINT64_MAX, 0) == -EINVAL && ramp_error()[0]);
	CHECK(ramp_pull_begin(s, 1, UINT64_MAX, &none) == -EINVAL && !none);
	CHECK(ramp_hint(s, 1, UINT64_MAX) == -EINVAL);
	CHECK(ramp_pull(s, 64 * MIB, 1, 20000) == 0); /* behind the end */
	CHECK(ramp_hint(s, 64 * MIB, 1) == 0);
	ramp_pull_end(NULL);
}

static void pull(const char *mount, const char *name)
{
	struct ramp_pulling *late = NULL, *whole = NULL;
	struct ramp_segment *s = NULL;
	struct ramp_cluster *ramp;
	uint64_t *words;
	struct pollfd at = {.events = POLLIN};

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_get(ramp, name, 0, &s) == 0);
	words = ramp_data(s);
	pull_bad(s);
	CHECK(ramp_pull(s, 4096, MIB - 4096, 60000) == 0 && !ramp_error()[0]);
	CHECK(ramp_pull_begin(s, 2 * MIB + 5, 10, &late) == 0);
	at.fd = ramp_pull_fd(late);
	CHECK(poll(&at, 1, 60000) == 1);
	CHECK(ramp_pull_wait(late, 60000) == 0 && ramp_pull_wait(late, 0) == 0);
	ramp_pull_end(late);
	CHECK(ramp_hint(s, 4 * MIB, MIB) == 0);
	say_and_wait("hinted");
	/* Nothing comes any more: what was asked for is here. */
	check_words(words, 4096, MIB - 4096);
	check_words(words, 2 * MIB, 4096);
	check_words(words, 4 * MIB, MIB);
	CHECK(ramp_pull(s, 4 * MIB, MIB, 20000) == 0);
	CHECK(ramp_pull(s, 0, 8192, 100) == -ETIMEDOUT && ramp_error()[0]);
	alarm(1);
	CHECK(ramp_pull(s, 0, 0, -1) == -EINTR);
	CHECK(ramp_pull_begin(s, 6 * MIB, 4096, &late) == 0 &&
	      ramp_pull_begin(s, 0, 0, &whole) == 0);
	CHECK(ramp_pull_wait(late, 0) == -ETIMEDOUT);
	ramp_pull_end(late);
	say_and_wait("waits");
	CHECK(ramp_pull_wait(whole, 60000) == 0);
	ramp_pull_end(whole);
	check_words(words, 0, 8 * MIB);
	CHECK(ramp_pull(s, 0, 0, 0) == -ETIMEDOUT || ramp_pull(s, 0, 0, 20000) == 0);
	say_and_wait("whole");
	CHECK(ramp_pull(s, 0, 0, 20000) == -EREMOTE && ramp_hint(s, 0, 0) == -EREMOTE);
	ramp_put(s);
	ramp_close(ramp);
}

static void give_up(const char *mount, const char *name, bool zeros)
{
	const int flags = zeros ? RAMP_ZEROS : 0;
	struct ramp_segment *s = NULL, *reader = NULL;
	struct ramp_cluster *ramp;
	uint64_t *words;

	CHECK(ramp_open(mount, &ramp) == 0 && ramp_get(ramp, name, RAMP_READ_ONLY, &reader) == 0);
	CHECK(ramp_give_up_rest(reader, flags) == -EACCES && ramp_error()[0]);
	ramp_put(reader);
	CHECK(ramp_get(ramp, name, 0, &s) == 0);
	words = ramp_data(s);
	CHECK(ramp_give_up_rest(s, 2) == -EINVAL);
	CHECK(ramp_pull(s, 0, MIB, 60000) == 0);
	CHECK(ramp_give_up_rest(s, flags) == 0 && !ramp_error()[0]);
	CHECK(ramp_give_up_rest(s, 0) == 0); /* nothing is missing any more */
	check_words(words, 0, MIB);
	CHECK(load(words + 3 * MIB / 8 + 1) == (zeros ? 0 : -1));
	CHECK(ramp_pull(s, 0, 0, 20000) == (zeros ? 0 : -EIO));
	if (zeros)
		words[3 * MIB / 8 + 1] = 4711;
	say_and_wait("given up");
	check_words(words, 0, MIB);
	CHECK(load(words + 3 * MIB / 8 + 1) == (zeros ? 4711 : -1));
	ramp_put(s);
	ramp_close(ramp);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_alarm};

	catch_bus();
	sigaction(SIGALRM, &action, NULL);
	if (argc == 5 && !strcmp(argv[1], "walk"))
		walk(argv[2], argv[3], argv[4]);
	else if (argc == 6 && !strcmp(argv[1], "hold"))
		hold(argv[2], argv[3], argv[4], !strcmp(argv[5], "prepare"));
	else if (argc == 5 && !strcmp(argv[1], "receive"))
		receive(argv[2], argv[3], atoi(argv[4]));
	else if (argc == 5 && !strcmp(argv[1], "fill"))
		fill(argv[2], argv[3], strtoul(argv[4], NULL, 10));
	else if (argc == 5 && !strcmp(argv[1], "give_up"))
		give_up(argv[2], argv[3], !strcmp(argv[4], "zeros"));
	else if (argc == 4 && !strcmp(argv[1], "pull"))
		pull(argv[2], argv[3]);
	else
		return fprintf(stderr, "steps_user: see steps_user.c\n"), 2;
	return 0;
}
