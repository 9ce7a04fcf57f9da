/*
 * Rows of segments and nodes: their columns, and how they are read from a statement.
 */
#ifndef RAMP_META_JOURNAL_ROWS_H
#define RAMP_META_JOURNAL_ROWS_H

#include "journal_sql.h"
#include "meta.h"

#define SEGMENT_COLUMNS                                                                            \
	"id, epoch, phase, unlinked, node, node_inc, dst, dst_inc, src, src_inc, k_source, "       \
	"k_ticket, k_epoch, name, dst_name, size, mode, uid, gid, atime, atime_ns, mtime, "        \
	"mtime_ns, ctime, ctime_ns, extent_addr, extent_len, extent_asked, pages, mmap"
#define NODE_COLUMNS "node, name, address, incarnation, fenced, instance, capacity, role"
/* Each reads a row from the statement's columns, which are those above. */
void sql_get_segment(sqlite3_stmt *st, struct segment_row *row);
void sql_get_node(sqlite3_stmt *st, struct node_row *row);

#endif
