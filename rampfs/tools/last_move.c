#include "last_move.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>

#define TRIES	 50
#define AGAIN_MS 20

/* Finds NAME=VALUE; "" where there is no such word. `value` has room for all of `words`. */
static const char *find_word(const char *words, const char *name, char *value)
{
	size_t len = strlen(name);

	for (const char *at = words; at; at = strchr(at, ' ')) {
		at += *at == ' ';
		if (strncmp(at, name, len) == 0 && at[len] == '=') {
			strcpy(value, at + len + 1);
			value[strcspn(value, " ")] = 0;
			return value;
		}
	}
	value[0] = 0;
	return value;
}

/* Returns 0 or -errno. */
static int read_words(const char *path, bool whole, char *words, size_t len)
{
	struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000};
	ssize_t n;

	for (int i = 0; i < TRIES; i++) {
		n = lgetxattr(path, "user.ramp.last_move", words, len - 1);
		if (n < 0)
			return -errno;
		words[n] = 0;
		if (strstr(words, whole ? "pull_us=" : "window_us="))
			break;
		nanosleep(&pause, NULL);
	}
	return 0;
}

static void print_source(const char *words, const char *file)
{
	char v[6][1024];

	printf("%s: from %s to %s: no program could touch it for %s us; connected in %s us, agreed "
	       "in %s us",
	       file, find_word(words, "from", v[0]), find_word(words, "to", v[1]),
	       find_word(words, "window_us", v[2]), find_word(words, "connect_us", v[3]),
	       find_word(words, "prepare_us", v[4]));
	if (strcmp(find_word(words, "rounds_us", v[5]), "0") != 0)
		printf(", copied ahead in %s us", v[5]);
	if (strcmp(find_word(words, "asked_us", v[5]), "0") != 0)
		printf(", programs let go after %s us", v[5]);
	putchar('\n');
}

static void print_target(const char *words, const char *file)
{
	char v[9][1024];

	printf("%s: whole after %s us over %s; pages: %s in rounds, %s in the window, %s on "
	       "demand, %s in the background, %s holes, %s there already, %s lost\n",
	       file, find_word(words, "pull_us", v[0]), find_word(words, "transport", v[1]),
	       find_word(words, "round_pages", v[2]), find_word(words, "window_pages", v[3]),
	       find_word(words, "demand_pages", v[4]), find_word(words, "prefetch_pages", v[5]),
	       find_word(words, "hole_pages", v[6]), find_word(words, "local_pages", v[7]),
	       find_word(words, "lost_pages", v[8]));
}

void last_move_print(const char *path, const char *file, bool whole)
{
	char words[1024];
	int rc = read_words(path, whole, words, sizeof(words));

	if (rc)
		printf("%s: what it has cost can't be read: %s\n", file, strerror(-rc));
	else if (!strstr(words, "window_us="))
		printf("%s: what it has cost is not known here\n", file);
	else
		print_source(words, file);
	if (!rc && strstr(words, "pull_us="))
		print_target(words, file);
}
