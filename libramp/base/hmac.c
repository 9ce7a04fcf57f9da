#include "hmac.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

struct hmac {
	EVP_MAC_CTX *ctx;
	bool bad; /* since hmac_begin */
};

int hmac_open(struct hmac **out, const void *key, size_t len)
{
	char digest[] = "SHA256";
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_end(),
	};
	struct hmac *hmac = calloc(1, sizeof(*hmac));
	EVP_MAC *mac;

	if (!hmac)
		return -ENOMEM;
	/* Without memory at its very start OpenSSL 3.0 has no context, and fetching crashes
	   because of that. */
	if (!OSSL_LIB_CTX_get0_global_default()) {
		free(hmac);
		return -ENOMEM;
	}
	mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	if (!mac) {
		free(hmac);
		return -ENOTSUP;
	}
	hmac->ctx = EVP_MAC_CTX_new(mac);
	EVP_MAC_free(mac); /* the context keeps its own reference */
	if (!hmac->ctx || !EVP_MAC_init(hmac->ctx, key, len, params)) {
		hmac_close(hmac);
		return -ENOMEM;
	}
	*out = hmac;
	return 0;
}

void hmac_close(struct hmac *hmac)
{
	if (!hmac)
		return;
	EVP_MAC_CTX_free(hmac->ctx);
	free(hmac);
}

void hmac_begin(struct hmac *hmac)
{
	/* No key: the one that was set before stays. */
	hmac->bad = !EVP_MAC_init(hmac->ctx, NULL, 0, NULL);
}

void hmac_add(struct hmac *hmac, const void *bytes, size_t len)
{
	if (!hmac->bad && len > 0)
		hmac->bad = !EVP_MAC_update(hmac->ctx, bytes, len);
}

int hmac_end(struct hmac *hmac, uint8_t mac[HMAC_BYTES])
{
	size_t len = 0;

	if (hmac->bad || !EVP_MAC_final(hmac->ctx, mac, &len, HMAC_BYTES) || len != HMAC_BYTES) {
		memset(mac, 0, HMAC_BYTES);
		return -EIO;
	}
	return 0;
}

int hmac_once(const void *key, size_t key_len, const void *bytes, size_t len,
	      uint8_t mac[HMAC_BYTES])
{
	struct hmac *hmac;
	int rc = hmac_open(&hmac, key, key_len);

	if (rc)
		return rc;
	hmac_begin(hmac);
	hmac_add(hmac, bytes, len);
	rc = hmac_end(hmac, mac);
	hmac_close(hmac);
	return rc;
}

bool hmac_equal(const uint8_t a[HMAC_BYTES], const uint8_t b[HMAC_BYTES])
{
	return CRYPTO_memcmp(a, b, HMAC_BYTES) == 0;
}

int hmac_derive(const uint8_t key[HMAC_BYTES], const char *label, const void *context, size_t len,
		uint8_t out[HMAC_BYTES])
{
	struct hmac *hmac;
	int rc = hmac_open(&hmac, key, HMAC_BYTES);

	if (rc)
		return rc;
	hmac_begin(hmac);
	hmac_add(hmac, label, strlen(label) + 1); /* its NUL keeps label and context apart */
	hmac_add(hmac, context, len);
	rc = hmac_end(hmac, out);
	hmac_close(hmac);
	return rc;
}

int hmac_cluster_key(const void *bytes, size_t len, uint8_t key[HMAC_BYTES])
{
	static const char purpose[] = "rampfs cluster key";

	return hmac_once(purpose, sizeof(purpose), bytes, len, key);
}

void hmac_wipe(void *bytes, size_t len)
{
	OPENSSL_cleanse(bytes, len);
}
