/*
 * Rows of segments and nodes, read from a statement's columns. See journal_rows.h.
 */
#include "journal_rows.h"

#include <string.h>

void sql_get_segment(sqlite3_stmt *st, struct segment_row *row)
{
	int at = 0;

	memset(row, 0, sizeof(*row));
	row->id = sql_get_u64(st, &at);
	row->epoch = sql_get_u64(st, &at);
	row->phase = (enum segment_phase)sql_get_u32(st, &at);
	row->unlinked = sql_get_u32(st, &at) != 0;
	row->node = sql_get_u32(st, &at);
	row->node_inc = sql_get_u64(st, &at);
	row->dst = sql_get_u32(st, &at);
	row->dst_inc = sql_get_u64(st, &at);
	row->src = sql_get_u32(st, &at);
	row->src_inc = sql_get_u64(st, &at);
	row->k.source_id = sql_get_u64(st, &at);
	row->k.ticket = sql_get_u64(st, &at);
	row->k_epoch = sql_get_u64(st, &at);
	sql_get_text(st, &at, row->name, sizeof(row->name));
	sql_get_text(st, &at, row->dst_name, sizeof(row->dst_name));
	row->size = sql_get_u64(st, &at);
	row->mode = sql_get_u32(st, &at);
	row->uid = sql_get_u32(st, &at);
	row->gid = sql_get_u32(st, &at);
	row->atime.sec = (int64_t)sql_get_u64(st, &at);
	row->atime.nsec = sql_get_u32(st, &at);
	row->mtime.sec = (int64_t)sql_get_u64(st, &at);
	row->mtime.nsec = sql_get_u32(st, &at);
	row->ctime.sec = (int64_t)sql_get_u64(st, &at);
	row->ctime.nsec = sql_get_u32(st, &at);
	row->extent_addr = sql_get_u64(st, &at);
	row->extent_len = sql_get_u64(st, &at);
	segment_set_asked(row, sql_get_u64(st, &at));
	row->pages = (uint8_t)sql_get_u32(st, &at);
	segment_set_ways(row, (uint8_t)sql_get_u32(st, &at));
}

void sql_get_node(sqlite3_stmt *st, struct node_row *row)
{
	int at = 0;

	memset(row, 0, sizeof(*row));
	row->node = sql_get_u32(st, &at);
	sql_get_text(st, &at, row->name, sizeof(row->name));
	sql_get_text(st, &at, row->address, sizeof(row->address));
	row->incarnation = sql_get_u64(st, &at);
	row->fenced = sql_get_u64(st, &at);
	row->instance = sql_get_u64(st, &at);
	row->capacity = sql_get_u64(st, &at);
	row->role = (enum node_role)sql_get_u32(st, &at);
}
