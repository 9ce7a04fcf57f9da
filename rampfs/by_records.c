/*
 * The file `members`: magic, version, this node and its cluster, the members, and a checksum.
 *
 * How it fails: without room in the store the file stays as it is, and names the members of an earlier
 * day: a node that is not in it is not reached. A file that is damaged, or that another version wrote,
 * is none, and then nothing can be served.
 */
#include "by_records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/wire.h"
#include "memory/store.h"
#include "meta/meta.h"
#include "mount/row_note.h"

#define MEMBERS_MAGIC	UINT64_C(0x7362656d736d72)
#define MEMBERS_VERSION 1
#define MEMBERS_BYTES	65536
#define MEMBERS_MAX	64 /* of a cluster */

/* ---- the members ---------------------------------------------------------------------------- */

struct member_list {
	struct node_row row[MEMBERS_MAX];
	size_t n;
};

static int list_member(void *arg, const struct node_row *row)
{
	struct member_list *list = arg;

	if (row->role != NODE_REMOVED && list->n < MEMBERS_MAX)
		list->row[list->n++] = *row;
	return 0;
}

static size_t by_records_encode(struct meta *meta, const struct member_list *list, uint8_t *bytes)
{
	uint8_t cluster_id[32];
	uint64_t addr, len;
	struct wire_w w;

	meta_cluster_id(meta, cluster_id);
	meta_arena(meta, &addr, &len);
	wire_w_init(&w, bytes, MEMBERS_BYTES);
	wire_put_u64(&w, MEMBERS_MAGIC);
	wire_put_u8(&w, MEMBERS_VERSION);
	wire_put_bytes(&w, cluster_id, sizeof(cluster_id));
	wire_put_u64(&w, meta_instance(meta));
	wire_put_u32(&w, meta_self(meta));
	wire_put_u64(&w, addr);
	wire_put_u64(&w, len);
	wire_put_u32(&w, (uint32_t)list->n);
	for (size_t i = 0; i < list->n; i++) {
		const struct node_row *row = &list->row[i];

		wire_put_u32(&w, row->node);
		wire_put_str(&w, row->name);
		wire_put_str(&w, row->address);
		wire_put_u64(&w, row->incarnation);
		wire_put_u64(&w, row->instance);
		wire_put_u64(&w, row->capacity);
		wire_put_u8(&w, (uint8_t)row->role);
	}
	wire_put_u32(&w, w.bad ? 0 : wire_crc32c(bytes, w.len));
	return w.bad ? 0 : w.len;
}

static int decode(const uint8_t *bytes, size_t len, struct meta_founding *known,
		  struct member_list *list)
{
	struct wire_r r;
	uint32_t n;

	if (!wire_r_init_checked(&r, bytes, len) || wire_get_u64(&r) != MEMBERS_MAGIC ||
	    wire_get_u8(&r) != MEMBERS_VERSION)
		return -EPROTO;
	wire_get_bytes(&r, known->cluster_id, sizeof(known->cluster_id));
	known->instance = wire_get_u64(&r);
	known->self = wire_get_u32(&r);
	known->arena_addr = wire_get_u64(&r);
	known->arena_len = wire_get_u64(&r);
	n = wire_get_u32(&r);
	if (n > MEMBERS_MAX)
		return -EPROTO;
	for (list->n = 0; list->n < n; list->n++) {
		struct node_row *row = &list->row[list->n];

		row->node = wire_get_u32(&r);
		wire_get_str(&r, row->name, sizeof(row->name));
		wire_get_str(&r, row->address, sizeof(row->address));
		row->incarnation = wire_get_u64(&r);
		row->instance = wire_get_u64(&r);
		row->capacity = wire_get_u64(&r);
		row->role = wire_get_u8(&r) == NODE_VOTER ? NODE_VOTER : NODE_STANDBY;
	}
	known->nodes = list->row;
	known->n_nodes = list->n;
	known->joins = true;
	return wire_r_done(&r) ? 0 : -EPROTO;
}

static ssize_t read_file(struct store *store, uint8_t bytes[MEMBERS_BYTES])
{
	int fd = store_open_private(store, "members", O_RDONLY | O_NOFOLLOW, 0);
	ssize_t n = fd >= 0 ? read(fd, bytes, MEMBERS_BYTES) : fd;

	n = n < 0 && fd >= 0 ? -errno : n;
	if (fd >= 0)
		close(fd);
	return n;
}

void by_records_keep(struct store *store, struct meta *meta)
{
	struct member_list *list = calloc(1, sizeof(*list));
	uint8_t *bytes = malloc(MEMBERS_BYTES), *old = malloc(MEMBERS_BYTES);
	size_t len = 0;
	int rc = -ENOMEM;

	if (list && bytes && old) {
		meta_each_node(meta, list_member, list);
		len = by_records_encode(meta, list, bytes);
		rc = len ? 0 : -EMSGSIZE;
	}
	if (!rc && (read_file(store, old) != (ssize_t)len || memcmp(old, bytes, len) != 0))
		rc = store_replace_private(store, "members", bytes, len);
	if (rc)
		log_warn("a start without the journal would not know the members as they are: %s",
			 strerror(-rc));
	free(old);
	free(bytes);
	free(list);
}

/* ---- opening -------------------------------------------------------------------------------- */

struct row_list {
	const struct meta_founding *known;
	ramp_incarnation_t incarnation;
	struct segment_row *row;
	size_t n, max;
};

static void count_segment(void *arg, struct seg *seg)
{
	(void)seg;
	((struct row_list *)arg)->max++;
}

static void list_segment(void *arg, struct seg *seg)
{
	struct row_list *list = arg;

	if (list->n < list->max &&
	    row_of_record(seg, list->known->self, list->incarnation, &list->row[list->n]))
		list->n++;
}

static int open_rows(const struct meta_config *config, struct store *store, const char *copy,
		     const struct meta_founding *known, struct meta **out, struct ramp_err *err)
{
	struct row_list list = {.known = known, .incarnation = store_incarnation(store)};
	int rc;

	store_each(store, count_segment, &list);
	list.row = calloc(list.max + 1, sizeof(*list.row));
	if (!list.row)
		return ramp_err_set(err, ENOMEM, "no memory for the rows");
	store_each(store, list_segment, &list);
	rc = meta_open_rows(config, copy, known, list.row, list.n, out, err);
	free(list.row);
	return rc;
}

int by_records_open(const struct meta_config *config, struct store *store, const char *copy,
		    struct meta **out, struct ramp_err *err)
{
	struct member_list *list = calloc(1, sizeof(*list));
	uint8_t *bytes = malloc(MEMBERS_BYTES);
	struct meta_founding known = {0};
	ssize_t n = list && bytes ? read_file(store, bytes) : -ENOMEM;
	int rc = n < 0 ? (int)n : decode(bytes, (size_t)n, &known, list);

	if (rc)
		rc = ramp_err_sys(err, -rc, "the store's list of members");
	else
		rc = open_rows(config, store, copy, &known, out, err);
	free(bytes);
	free(list);
	return rc;
}
