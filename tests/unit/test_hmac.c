/*
 * HMAC-SHA-256 against RFC 4231, and the keys derived by it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>
#include <openssl/crypto.h>

#include "base/hmac.h"
#include "lib/run_suite.h"

static void from_hex(const char *hex, uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char byte[3] = {hex[2 * i], hex[2 * i + 1], 0};

		bytes[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
}

START_TEST(rfc_4231_vectors)
{
	uint8_t key[131], want[HMAC_BYTES], got[HMAC_BYTES];

	memset(key, 0x0b, 20);
	from_hex("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7", want, 32);
	ck_assert_int_eq(hmac_once(key, 20, "Hi There", 8, got), 0);
	ck_assert(hmac_equal(got, want));

	from_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", want, 32);
	ck_assert_int_eq(hmac_once("Jefe", 4, "what do ya want for nothing?", 28, got), 0);
	ck_assert(hmac_equal(got, want));

	memset(key, 0xaa, 131);
	from_hex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", want, 32);
	ck_assert_int_eq(hmac_once(key, 131,
				   "Test Using Larger Than Block-Size Key - Hash Key First", 54,
				   got),
			 0);
	ck_assert(hmac_equal(got, want));
}
END_TEST

START_TEST(a_context_is_used_again)
{
	uint8_t once[HMAC_BYTES], again[HMAC_BYTES];
	struct hmac *hmac;

	ck_assert_int_eq(hmac_open(&hmac, "key", 3), 0);
	ck_assert_int_eq(hmac_once("key", 3, "one message", 11, once), 0);
	for (int i = 0; i < 3; i++) {
		hmac_begin(hmac);
		hmac_add(hmac, "one ", 4);
		hmac_add(hmac, NULL, 0);
		hmac_add(hmac, "message", 7);
		ck_assert_int_eq(hmac_end(hmac, again), 0);
		ck_assert(hmac_equal(once, again));
	}
	/* A MAC that was begun and not ended leaves nothing behind. */
	hmac_begin(hmac);
	hmac_add(hmac, "something else", 14);
	hmac_begin(hmac);
	hmac_add(hmac, "one message", 11);
	ck_assert_int_eq(hmac_end(hmac, again), 0);
	ck_assert(hmac_equal(once, again));
	hmac_close(hmac);
}
END_TEST

START_TEST(every_bit_counts)
{
	uint8_t a[HMAC_BYTES], b[HMAC_BYTES];

	ck_assert_int_eq(hmac_once("k", 1, "m", 1, a), 0);
	for (size_t i = 0; i < HMAC_BYTES * 8; i++) {
		memcpy(b, a, sizeof(a));
		b[i / 8] ^= (uint8_t)(1u << (i % 8));
		ck_assert(!hmac_equal(a, b));
	}
}
END_TEST

START_TEST(labels_give_different_keys)
{
	uint8_t key[HMAC_BYTES], a[HMAC_BYTES], b[HMAC_BYTES];

	ck_assert_int_eq(hmac_cluster_key("secret", 6, key), 0);
	ck_assert_int_eq(hmac_derive(key, "a", "bc", 2, a), 0);
	ck_assert_int_eq(hmac_derive(key, "ab", "c", 1, b), 0);
	ck_assert(!hmac_equal(a, b));
	ck_assert_int_eq(hmac_derive(key, "a", "bc", 2, b), 0);
	ck_assert(hmac_equal(a, b));
	ck_assert_int_eq(hmac_cluster_key("secreu", 6, b), 0);
	ck_assert(!hmac_equal(key, b));
}
END_TEST

/* ---- without memory ------------------------------------------------------------------------- */

static long left; /* of OpenSSL's allocations, before the one that fails */

static void *take(size_t len, const char *file, int line)
{
	(void)file;
	(void)line;
	return left-- == 0 ? NULL : malloc(len);
}

static void *take_again(void *at, size_t len, const char *file, int line)
{
	(void)file;
	(void)line;
	return left-- == 0 ? NULL : realloc(at, len);
}

static void give(void *at, const char *file, int line)
{
	(void)file;
	(void)line;
	free(at);
}

/* None of them is the exit status of a crash, or of a sanitizer's report. */
enum { RIGHT = 10, REFUSED, WRONG, ALL_MADE };

/* The first use of OpenSSL in a process, with allocation n failing, and then the second. */
static int first_use(long n)
{
	uint8_t want[HMAC_BYTES], got[HMAC_BYTES];
	int rc, again;

	from_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", want, 32);
	left = LONG_MAX;
	if (!CRYPTO_set_mem_functions(take, take_again, give))
		return WRONG;
	/* OpenSSL 3.5 waits for itself for ever where its own initialization gets no memory. */
	if (OpenSSL_version_num() >= 0x30500000L)
		OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, NULL);
	alarm(20); /* a hang is a failure that names the allocation */
	left = n;
	rc = hmac_once("Jefe", 4, "what do ya want for nothing?", 28, got);
	if (left >= 0)
		return rc ? WRONG : ALL_MADE;
	if (rc == 0 && !hmac_equal(got, want))
		return WRONG;
	again = hmac_once("Jefe", 4, "what do ya want for nothing?", 28, got);
	if (again == 0 && !hmac_equal(got, want))
		return WRONG;
	return rc || again ? REFUSED : RIGHT;
}

/* Before the other tests: in none of these processes has OpenSSL been used. */
START_TEST(openssl_that_gets_no_memory_is_an_error_and_no_crash)
{
	int status, refused = 0;
	long n = 0;

	do {
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (pid == 0)
			_exit(first_use(n));
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) >= RIGHT &&
				      WEXITSTATUS(status) != WRONG,
			      "allocation %ld: status %#x", n, (unsigned int)status);
		refused += WEXITSTATUS(status) == REFUSED;
		/* Its context comes first; then thousands follow, most of them of error texts. */
		n += n < 80 ? 1 : 16;
	} while (WEXITSTATUS(status) != ALL_MADE);
	ck_assert_int_gt(refused, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hmac");
	TCase *tc = tcase_create("hmac");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, openssl_that_gets_no_memory_is_an_error_and_no_crash);
	tcase_add_test(tc, rfc_4231_vectors);
	tcase_add_test(tc, a_context_is_used_again);
	tcase_add_test(tc, every_bit_counts);
	tcase_add_test(tc, labels_give_different_keys);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
