/*
 * HMAC-SHA-256 (RFC 2104, by libcrypto): proves that a peer knows the cluster key, and that bytes
 * are as they were sent.
 *
 * A struct hmac holds one key, already scheduled, and computes one MAC after the other without an
 * allocation: hmac_begin, hmac_add as often as needed, hmac_end. An error of libcrypto (out of
 * memory, no such digest) is kept until hmac_end, which says it; a MAC is valid only where
 * hmac_end returned 0.
 *
 * Thread-safety: one struct hmac by one thread at a time; the other functions from any thread.
 */
#ifndef RAMP_HMAC_H
#define RAMP_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HMAC_BYTES 32

struct hmac;

/* -ENOMEM or -ENOTSUP (libcrypto has no SHA-256). The key is copied. */
int hmac_open(struct hmac **out, const void *key, size_t len);
void hmac_close(struct hmac *hmac); /* NULL: nothing */

void hmac_begin(struct hmac *hmac);
void hmac_add(struct hmac *hmac, const void *bytes, size_t len);
int hmac_end(struct hmac *hmac, uint8_t mac[HMAC_BYTES]); /* 0 or -EIO */

/* Computes one MAC over one run of bytes. 0 or a negative errno. */
int hmac_once(const void *key, size_t key_len, const void *bytes, size_t len,
	      uint8_t mac[HMAC_BYTES]);

/* Compares in a time that does not depend on where they differ. */
bool hmac_equal(const uint8_t a[HMAC_BYTES], const uint8_t b[HMAC_BYTES]);

/*
 * Derives a key for one purpose: HMAC(key, label, 0, context). Keys of different labels reveal
 * nothing about each other. 0 or a negative errno.
 */
int hmac_derive(const uint8_t key[HMAC_BYTES], const char *label, const void *context, size_t len,
		uint8_t out[HMAC_BYTES]);

/* Derives the cluster key from the bytes of a key file (any length). 0 or a negative errno. */
int hmac_cluster_key(const void *bytes, size_t len, uint8_t key[HMAC_BYTES]);

/* Overwrites a key that is no longer needed; not optimized away. */
void hmac_wipe(void *bytes, size_t len);

#endif
