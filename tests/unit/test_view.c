/*
 * The names of a segment's states. This file stands in for the tables.
 */
#include <check.h>
#include <errno.h>

#include "lib/run_suite.h"
#include "mount/facts.h"

#define OWNER 2

static struct mount mount_double;
static struct node_row in_the_tables;

int __wrap_meta_node(struct meta *meta, ramp_node_t node, struct node_row *row);
int __wrap_meta_node(struct meta *meta, ramp_node_t node, struct node_row *row)
{
	(void)meta;
	if (node != in_the_tables.node)
		return -ENOENT;
	*row = in_the_tables;
	return 0;
}

struct seg *__wrap_store_find(struct store *store, ramp_segment_t id);
struct seg *__wrap_store_find(struct store *store, ramp_segment_t id)
{
	(void)store;
	(void)id;
	return NULL;
}

bool __wrap_transfers_rolled_back(struct transfers *transfers, ramp_segment_t id);
bool __wrap_transfers_rolled_back(struct transfers *transfers, ramp_segment_t id)
{
	(void)transfers;
	(void)id;
	return false;
}

static const char *state(ramp_incarnation_t made_in, const struct node_row *owner)
{
	struct segment_row row = {
		.phase = SEGMENT_STABLE, .node = OWNER, .node_inc = made_in, .id = 5000};

	return facts_state(&mount_double, &row, owner);
}

START_TEST(what_went_with_an_incarnation_is_lost)
{
	in_the_tables = (struct node_row){.node = OWNER, .incarnation = 8};
	ck_assert_str_eq(state(8, &in_the_tables), "stable");
	ck_assert_str_eq(state(7, &in_the_tables), "lost");
	in_the_tables.fenced = 8;
	ck_assert_str_eq(state(8, &in_the_tables), "lost");
}
END_TEST

/* A list of very many segments takes seconds, and its nodes were read at its beginning. */
START_TEST(what_a_node_has_made_since_it_was_read_is_not_lost)
{
	struct node_row before = {.node = OWNER, .incarnation = 7, .fenced = 7};

	in_the_tables = (struct node_row){.node = OWNER, .incarnation = 8, .fenced = 7};
	ck_assert_str_eq(state(8, &before), "stable");
	ck_assert_str_eq(state(7, &before), "lost");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("view");
	TCase *tc = tcase_create("state");

	tcase_add_test(tc, what_went_with_an_incarnation_is_lost);
	tcase_add_test(tc, what_a_node_has_made_since_it_was_read_is_not_lost);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
