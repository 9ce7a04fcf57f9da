#include "steps.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void steps_add(struct steps *steps, const struct session_msg *msg)
{
	struct shown_step *s;

	if (!steps->all)
		steps->all = calloc(STEPS_MAX, sizeof(*steps->all));
	if (!steps->all || steps->n == STEPS_MAX)
		return;
	s = &steps->all[steps->n++];
	s->at_ns = msg->done;
	s->page = msg->all;
	snprintf(s->node, sizeof(s->node), "%s", msg->node);
	snprintf(s->text, sizeof(s->text), "%s", msg->text);
}

/* Prints the steps of one page, or of none. They are in the order of time. */
static void print_page(const struct steps *steps, uint64_t page)
{
	const struct shown_step *first = NULL, *last = NULL;

	printf("  %12s  %12s  %-8s  %s\n", "at us", "took us", "node", "step");
	for (size_t i = 0; i < steps->n; i++) {
		const struct shown_step *s = &steps->all[i];

		if (s->page != page || !s->node[0])
			continue;
		if (!first)
			first = last = s;
		printf("  %12.1f  %12.1f  %-8s  %s\n", (double)(s->at_ns - first->at_ns) / 1e3,
		       (double)(s->at_ns - last->at_ns) / 1e3, s->node, s->text);
		last = s;
	}
}

static int is_first_of_page(const struct steps *steps, size_t at)
{
	for (size_t i = 0; i < at; i++)
		if (steps->all[i].page == steps->all[at].page)
			return 0;
	return 1;
}

void steps_print(struct steps *steps, const char *file)
{
	printf("%s: the transfer\n", file);
	for (size_t i = 0; i < steps->n; i++)
		if (!steps->all[i].node[0])
			printf("  (%s)\n", steps->all[i].text);
	print_page(steps, 0);
	for (size_t i = 0; i < steps->n; i++) {
		const struct shown_step *s = &steps->all[i];

		if (!s->page || !is_first_of_page(steps, i))
			continue;
		printf("%s: page fault at page %" PRIu64 ", %.1f us after the first step\n", file,
		       s->page - 1, (double)s->at_ns / 1e3);
		print_page(steps, s->page);
	}
	fflush(stdout);
	free(steps->all);
	*steps = (struct steps){0};
}
