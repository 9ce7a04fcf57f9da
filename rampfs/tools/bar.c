#include "bar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/visible.h"

enum { CELLS = 24, FEWEST_CELLS = 8, SHORTEST_NAME = 16 };

#define LINE_PERCENT 25 /* off a terminal: a line each time this share more is there */

/* Returns a line's room: a full line would continue in the next one, which is never cleared. */
static int room(void)
{
	struct winsize size;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col == 0)
		return INT_MAX;
	return size.ws_col - 1;
}

static bool begins_character(char byte)
{
	return (byte & 0xc0) != 0x80;
}

static int width_of(const char *text)
{
	int width = 0;

	for (; *text; text++)
		width += begins_character(*text);
	return width;
}

/* Writes a path in that many columns: its end says more than its beginning. */
static void put_name(const char *name, int columns)
{
	int width = width_of(name);
	bool cut = width > columns;

	if (cut)
		columns -= 3;
	for (; *name && (width > columns || !begins_character(*name)); name++)
		width -= begins_character(*name);
	fprintf(stderr, "%s%s", cut ? "..." : "", name);
}

/* Writes the name, the bar and the facts. Where they do not fit, first the bar gets shorter, then
   the name, then there is no bar. */
static void put_pages(const char *name, uint64_t done, uint64_t all, const char *facts)
{
	int left = room() - (int)strlen(facts), width = width_of(name), cells = left - 3 - width;
	int full;

	if (cells > CELLS)
		cells = CELLS;
	if (cells < FEWEST_CELLS)
		cells = left - 3 - FEWEST_CELLS >= SHORTEST_NAME ? FEWEST_CELLS : 0;
	if (cells)
		left -= cells + 3;
	put_name(name, left > SHORTEST_NAME ? left : SHORTEST_NAME);
	if (cells) {
		full = (int)(done * (uint64_t)cells / all);
		fputs(" [", stderr);
		for (int i = 0; i < cells; i++)
			fputc(i < full ? '#' : '.', stderr);
		fputc(']', stderr);
	}
	full = left < SHORTEST_NAME ? room() - SHORTEST_NAME : INT_MAX;
	fprintf(stderr, "%.*s", full > 0 ? full : 0, facts);
}

static void draw_pages(struct bar *bar, uint64_t done, uint64_t all)
{
	double gone = clock_s() - bar->since_s;
	double rate = gone > 0.05 ? (double)(done - bar->first) / gone : 0;
	char facts[160];
	int len =
		snprintf(facts, sizeof(facts), " %" PRIu64 " %%  %" PRIu64 " of %" PRIu64 " pages",
			 done * 100 / all, done, all);

	if (rate > 0)
		snprintf(facts + len, sizeof(facts) - (size_t)len, "  %.2f GB/s  %.0f s left",
			 rate * RAMP_PAGE_BYTES / 1e9, (double)(all - done) / rate);
	fputs("\r\033[K", stderr);
	put_pages(bar->name, done, all, facts);
	fflush(stderr);
}

static void line_pages(struct bar *bar, uint64_t done, uint64_t all)
{
	uint64_t percent = done * 100 / all;

	if (percent < bar->lined + LINE_PERCENT)
		return;
	bar->lined = percent / LINE_PERCENT * LINE_PERCENT;
	fprintf(stderr, "%s: %" PRIu64 " %%, %" PRIu64 " of %" PRIu64 " pages\n", bar->name,
		percent, done, all);
}

void bar_begin(struct bar *bar, const char *file)
{
	*bar = (struct bar){.file = file, .tty = isatty(STDERR_FILENO)};
	visible(bar->name, sizeof(bar->name), file);
}

void bar_show(struct bar *bar, const struct session_msg *msg)
{
	bool fresh = strcmp(bar->state, msg->text) != 0;
	int left;

	if (fresh) {
		snprintf(bar->state, sizeof(bar->state), "%s", msg->text);
		bar->since_s = clock_s();
		bar->first = msg->done;
		bar->lined = 0;
	}
	if (!bar->tty) {
		if (fresh)
			fprintf(stderr, "%s: %s\n", bar->name, bar->state);
		if (msg->all && msg->done <= msg->all)
			line_pages(bar, msg->done, msg->all);
		return;
	}
	if (msg->all && msg->done <= msg->all && msg->done >= bar->first) {
		draw_pages(bar, msg->done, msg->all);
	} else {
		fputs("\r\033[K", stderr);
		left = room() - 2 - (int)strlen(bar->state);
		put_name(bar->name, left > SHORTEST_NAME ? left : SHORTEST_NAME);
		fprintf(stderr, ": %s", bar->state);
	}
	bar->drawn = true;
}

void bar_clear(struct bar *bar)
{
	if (bar->drawn && bar->tty)
		fputs("\r\033[K", stderr);
	bar->drawn = false;
}
