/*
 * The parts of the verbs transport that need no device: proofs, messages, regions, addresses.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <check.h>

#include "lib/run_suite.h"
#include "transport/verbs/addresses.h"
#include "transport/verbs/keys.h"
#include "transport/verbs/message.h"
#include "transport/verbs/proof.h"

#define PAGE ((size_t)RAMP_PAGE_BYTES)

static struct ramp_err err;

START_TEST(proofs)
{
	const struct proof_request request = {.class = 2, .node = 7, .life = 8, .counter = 9};
	const struct proof_answer answer = {.reads = 16, .life = 10};
	uint8_t secret[HMAC_BYTES] = {1}, challenge[PROOF_CHALLENGE_BYTES] = {2};
	uint8_t data[PROOF_BYTES], back[PROOF_BYTES + 140] = {0};
	struct proof_request got;
	struct proof_answer told;

	ck_assert_int_eq(proof_put_request(&request, secret, challenge, data), 0);
	ck_assert_int_eq(proof_get_request(data, PROOF_BYTES, &got, &err), 0);
	ck_assert_int_eq(proof_check_request(data, secret, challenge, &err), 0);
	ck_assert_uint_eq(got.node, 7);
	ck_assert_uint_eq(got.counter, 9);
	ck_assert_int_eq(proof_get_request(data, PROOF_BYTES - 1, &got, &err), -EPROTO);
	ck_assert_int_eq(proof_put_answer(&answer, data, secret, challenge, back), 0);
	/* Some devices pad. */
	ck_assert_int_eq(proof_get_answer(back, sizeof(back), data, secret, challenge, &told, &err),
			 0);
	ck_assert_uint_eq(told.life, 10);
	challenge[3] = 1;
	ck_assert_int_eq(proof_check_request(data, secret, challenge, &err), -EKEYREJECTED);
	ck_assert_int_eq(proof_get_answer(back, sizeof(back), data, secret, challenge, &told, &err),
			 -EKEYREJECTED);
	data[0] = 9;
	ck_assert_int_eq(proof_get_request(data, PROOF_BYTES, &got, &err), -EPROTONOSUPPORT);
}
END_TEST

static struct message_region region_at(uint64_t first, uint64_t count)
{
	return (struct message_region){first * PAGE, count * PAGE, UINT64_C(1) << 40, 5};
}

START_TEST(messages)
{
	struct message_region list[] = {region_at(0, 10), region_at(20, 5)};
	struct message_regions m = {.key = {5000, {1}}, .connection = 1, .life = 2}, got;
	struct message_at at = {.life = 4, .port = 77}, at_got;
	uint8_t body[512];
	struct wire_w w;
	struct wire_r r;

	m.n = 2;
	m.regions = list;
	wire_w_init(&w, body, sizeof(body));
	message_put_regions(&w, &m);
	for (size_t len = 0; len <= w.len; len++) {
		wire_r_init(&r, body, len);
		ck_assert_int_eq(message_get_regions(&r, &got), len == w.len ? 0 : -EBADMSG);
		free(got.regions);
	}
	list[1].offset = 9 * PAGE; /* within the first */
	wire_w_init(&w, body, sizeof(body));
	message_put_regions(&w, &m);
	wire_r_init(&r, body, w.len);
	ck_assert_int_eq(message_get_regions(&r, &got), -EBADMSG);
	((struct sockaddr_in *)&at.address)->sin_family = AF_INET;
	((struct sockaddr_in *)&at.address)->sin_addr.s_addr = htonl(0x0a000001);
	wire_w_init(&w, body, sizeof(body));
	message_put_at(&w, &at);
	wire_r_init(&r, body, w.len);
	ck_assert_int_eq(message_get_at(&r, &at_got), 0);
	ck_assert_uint_eq(((struct sockaddr_in *)&at_got.address)->sin_port, htons(77));
	wire_r_init(&r, body, w.len - 1);
	ck_assert_int_eq(message_get_at(&r, &at_got), -EBADMSG);
}
END_TEST

START_TEST(regions_in_parts)
{
	struct message_region list[] = {region_at(0, 10), region_at(20, 5), region_at(30, 1)};
	struct message_regions first = {.n = 2, .regions = list}, rest = first;
	struct keys keys = {0};
	struct tp_key other = {1, {2}};
	struct keys_entry *entry = keys_add(&keys, &other);
	size_t gap;

	rest.first = 1;
	rest.regions = list + 1;
	rest.whole = true;
	ck_assert(!keys_told(entry, &rest)); /* the one before is lost */
	ck_assert(keys_told(entry, &first));
	ck_assert(keys_told(entry, &first)); /* told again */
	ck_assert_uint_eq(entry->n, 2);
	ck_assert(keys_told(entry, &rest)); /* overlaps */
	ck_assert_uint_eq(entry->n, 3);
	ck_assert_uint_eq(entry->ask_ms, UINT64_MAX);
	ck_assert_ptr_eq(keys_cover(entry, 9 * PAGE, PAGE, &gap), &entry->regions[0]);
	ck_assert_ptr_null(keys_cover(entry, 10 * PAGE, 50 * PAGE, &gap));
	ck_assert_uint_eq(gap, 10 * PAGE);
	ck_assert_ptr_null(keys_cover(entry, 31 * PAGE, PAGE, &gap));
	ck_assert_uint_eq(gap, PAGE);
	/* More keys than there are places: the one that was used longest ago goes. */
	for (uint64_t i = 0; i < KEYS_MAX; i++) {
		struct tp_key more = {100 + i, {0}};

		keys_add(&keys, &more);
	}
	ck_assert_ptr_null(keys_find(&keys, &other));
	keys_free(&keys);
}
END_TEST

START_TEST(addresses_are_used_once)
{
	int fd = memfd_create("x", MFD_CLOEXEC);
	struct addresses addresses;
	void *one, *two;

	ck_assert_int_eq(ftruncate(fd, 8 << 20), 0);
	ck_assert_int_eq(addresses_open(&addresses, &err), 0);
	ck_assert_int_eq(addresses_map(&addresses, fd, 3 * PAGE, 4 * PAGE, &one), 0);
	addresses_unmap(one, 4 * PAGE);
	ck_assert_int_eq(addresses_map(&addresses, fd, 3 * PAGE, 4 * PAGE, &two), 0);
	ck_assert(two > one);
	ck_assert_uint_eq((uintptr_t)two % (2 << 20), 3 * PAGE); /* huge pages fit */
	addresses_unmap(two, 4 * PAGE);
	addresses.used = addresses.len - PAGE;
	ck_assert_int_eq(addresses_map(&addresses, fd, 0, 4 * PAGE, &two), -ENOSPC);
	addresses_close(&addresses);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verbs_parts");
	TCase *tc = tcase_create("verbs_parts");

	tcase_add_test(tc, proofs);
	tcase_add_test(tc, messages);
	tcase_add_test(tc, regions_in_parts);
	tcase_add_test(tc, addresses_are_used_once);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
