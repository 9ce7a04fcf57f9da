/*
 * The certificate of a recovery. See certificate.h.
 *
 * The proof is checked before any other line is looked at, so that what is parsed was written by
 * certificate_write.
 */
#include "certificate.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hmac.h"

static const char title[] = "rampfs recovery certificate 1\n";
static const char mac_word[] = "mac ";
static const char *const fates[] = {"recovered", "survivor", "lost"};

static void to_hex(const uint8_t *bytes, size_t len, char *text)
{
	for (size_t i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static bool from_hex(const char *text, uint8_t *bytes, size_t len)
{
	if (strlen(text) != 2 * len || strspn(text, "0123456789abcdef") != 2 * len)
		return false;
	for (size_t i = 0; i < len; i++)
		sscanf(text + 2 * i, "%2" SCNx8, &bytes[i]);
	return true;
}

static int derive_id(const struct certificate *c, const uint8_t key[STATEDIR_KEY_BYTES],
		     uint8_t id[32])
{
	uint8_t context[sizeof(c->from) + sizeof(c->salt)];

	memcpy(context, c->from, sizeof(c->from));
	memcpy(context + sizeof(c->from), c->salt, sizeof(c->salt));
	return hmac_derive(key, "rampfs recovered cluster id", context, sizeof(context), id);
}

int certificate_make_id(struct certificate *c, const uint8_t key[STATEDIR_KEY_BYTES],
			struct ramp_err *err)
{
	int rc = getrandom(c->salt, sizeof(c->salt), 0) == (ssize_t)sizeof(c->salt) ? 0 : -EIO;

	rc = rc ? rc : derive_id(c, key, c->to);
	return rc ? ramp_err_sys(err, -rc, "the new cluster's id") : 0;
}

static int prove(const char *text, size_t len, const uint8_t key[STATEDIR_KEY_BYTES],
		 char mac[2 * HMAC_BYTES + 1])
{
	uint8_t bytes[HMAC_BYTES];
	int rc = hmac_derive(key, "rampfs recovery certificate", text, len, bytes);

	if (!rc)
		to_hex(bytes, sizeof(bytes), mac);
	return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_lines(const struct certificate *c, FILE *to)
{
	char from_id[65], to_id[65], salt[2 * CERTIFICATE_SALT_BYTES + 1];

	to_hex(c->from, sizeof(c->from), from_id);
	to_hex(c->to, sizeof(c->to), to_id);
	to_hex(c->salt, sizeof(c->salt), salt);
	fprintf(to, "%scluster %s\nfrom %s\nto %s\nsalt %s\nby %u\nlast %" PRIu64 " %" PRIu64 "\n",
		title, c->cluster, from_id, to_id, salt, c->by, c->last.term, c->last.index);
	for (size_t i = 0; i < c->n_members; i++) {
		const struct node_row *row = &c->members[i].row;

		fprintf(to, "member %u %016" PRIx64 " %s %" PRIu64 " %s %s\n", row->node,
			row->instance, fates[c->members[i].fate], row->capacity, row->name,
			row->address);
	}
}

int certificate_write(const struct certificate *c, const uint8_t key[STATEDIR_KEY_BYTES],
		      char **text, struct ramp_err *err)
{
	char mac[2 * HMAC_BYTES + 1];
	size_t len = 0;
	FILE *to = open_memstream(text, &len);
	int rc;

	if (!to)
		return ramp_err_sys(err, ENOMEM, "the certificate");
	write_lines(c, to);
	rc = fflush(to) ? -ENOMEM : prove(*text, len, key, mac);
	if (!rc)
		fprintf(to, "%s%s\n", mac_word, mac);
	if (fclose(to) && !rc)
		rc = -ENOMEM;
	if (!rc)
		return 0;
	free(*text);
	*text = NULL;
	return ramp_err_sys(err, -rc, "the certificate");
}

/* ---- reading --------------------------------------------------------------------------------- */

static int certificate_check_proof(const char *text, const uint8_t key[STATEDIR_KEY_BYTES],
				   struct ramp_err *err)
{
	const char *mac = strstr(text, "\nmac ");
	char right[2 * HMAC_BYTES + 1], sent[2 * HMAC_BYTES + 2];
	uint8_t a[HMAC_BYTES], b[HMAC_BYTES];
	int rc;

	if (strncmp(text, title, strlen(title)) != 0 || !mac)
		return ramp_err_set(err, EPROTO, "it is no certificate of a recovery");
	mac++;
	rc = prove(text, (size_t)(mac - text), key, right);
	if (rc)
		return ramp_err_sys(err, -rc, "the certificate's proof");
	snprintf(sent, sizeof(sent), "%s", mac + strlen(mac_word));
	if (sent[2 * HMAC_BYTES] != '\n' || mac[strlen(mac_word) + 2 * HMAC_BYTES + 1] != '\0')
		return ramp_err_set(err, EPROTO, "the certificate is damaged at its end");
	sent[2 * HMAC_BYTES] = '\0';
	if (!from_hex(right, a, sizeof(a)) || !from_hex(sent, b, sizeof(b)) || !hmac_equal(a, b))
		return ramp_err_set(err, EKEYREJECTED,
				    "the certificate is not proved by this node's cluster key: it "
				    "is another cluster's, or was altered");
	return 0;
}

static bool parse_member(const char *line, struct certificate *c)
{
	struct certificate_member *m = &c->members[c->n_members];
	char fate[16];

	if (c->n_members == CONFIG_NODES_MAX ||
	    sscanf(line, "member %u %" SCNx64 " %15s %" SCNu64 " %63s %255s", &m->row.node,
		   &m->row.instance, fate, &m->row.capacity, m->row.name, m->row.address) != 6)
		return false;
	for (m->fate = FATE_RECOVERED; m->fate <= FATE_LOST; m->fate++)
		if (strcmp(fate, fates[m->fate]) == 0)
			break;
	m->row.role = m->fate == FATE_RECOVERED ? NODE_VOTER : NODE_STANDBY;
	c->n_members++;
	return m->fate <= FATE_LOST && m->row.node != 0 && config_name_ok(m->row.name) &&
	       config_address_ok(m->row.address);
}

static bool parse_line(const char *line, struct certificate *c)
{
	char word[16], value[80];

	if (strncmp(line, "member ", 7) == 0)
		return parse_member(line, c);
	if (strncmp(line, "last ", 5) == 0)
		return sscanf(line, "last %" SCNu64 " %" SCNu64, &c->last.term, &c->last.index) ==
		       2;
	if (sscanf(line, "%15s %79s", word, value) != 2)
		return false;
	if (strcmp(word, "cluster") == 0)
		return snprintf(c->cluster, sizeof(c->cluster), "%s", value) <
		       (int)sizeof(c->cluster);
	if (strcmp(word, "from") == 0)
		return from_hex(value, c->from, sizeof(c->from));
	if (strcmp(word, "to") == 0)
		return from_hex(value, c->to, sizeof(c->to));
	if (strcmp(word, "salt") == 0)
		return from_hex(value, c->salt, sizeof(c->salt));
	return strcmp(word, "by") == 0 && sscanf(value, "%u", &c->by) == 1;
}

int certificate_parse(const char *text, const uint8_t key[STATEDIR_KEY_BYTES],
		      struct certificate *c, struct ramp_err *err)
{
	char line[512];
	uint8_t id[32];
	int rc = certificate_check_proof(text, key, err);

	if (rc)
		return rc;
	memset(c, 0, sizeof(*c));
	for (text += strlen(title); strncmp(text, mac_word, strlen(mac_word)) != 0;) {
		size_t len = strcspn(text, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)len, text);
		if (len >= sizeof(line) || !parse_line(line, c))
			return ramp_err_set(err, EPROTO, "the certificate has a wrong line: %s",
					    line);
		text += len + 1;
	}
	rc = derive_id(c, key, id);
	if (rc)
		return ramp_err_sys(err, -rc, "the new cluster's id");
	if (memcmp(id, c->to, sizeof(id)) != 0 || !certificate_find(c, c->by))
		return ramp_err_set(err, EPROTO, "the certificate contradicts itself");
	return 0;
}

int certificate_read_file(const char *path, char **text, struct ramp_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	ssize_t len = -1;

	if (fd < 0)
		return ramp_err_sys(err, errno, "%s", path);
	*text = calloc(1, CERTIFICATE_MAX_BYTES + 1);
	if (*text && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		len = read(fd, *text, CERTIFICATE_MAX_BYTES);
	close(fd);
	if (len >= 0)
		return 0;
	free(*text);
	*text = NULL;
	return ramp_err_set(err, EINVAL, "%s: can't be read", path);
}

const struct certificate_member *certificate_find(const struct certificate *c, ramp_node_t node)
{
	for (size_t i = 0; i < c->n_members; i++)
		if (c->members[i].row.node == node)
			return &c->members[i];
	return NULL;
}
