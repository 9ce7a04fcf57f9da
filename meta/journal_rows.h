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
/*
 * Whether the tables have ever had a segment (?1). Ids are counted within their upper 32 bits, the
 * generation. A recovery ends one (journal_end_generation): the commits that were lost with the old
 * cluster may have given ids above its end, which are not given again. One of those that turned up
 * has a counter of its own (journal_note_recovered).
 */
#define SEGMENT_WAS                                                                                \
	"SELECT coalesce((SELECT CASE WHEN ?1 >> 32 = v >> 32 THEN ?1 < v WHEN ?1 >> 32 > v >> "   \
	"32 THEN 0 ELSE coalesce((SELECT ?1 < past.v FROM counter past WHERE past.k = "            \
	"'segment ' || (?1 >> 32)), 1) END FROM counter WHERE k = 'segment'), 0) OR EXISTS ("      \
	"SELECT 1 FROM counter WHERE k = 'recovered ' || ?1)"
/* The address of a node that counts on this node alone: the key's value is "OLD NEW"
   (journal_recovery.h). */
#define ADDRESS_KEY "address "
/* Each reads a row from the statement's columns, which are those above. */
void sql_get_segment(sqlite3_stmt *st, struct segment_row *row);
void sql_get_node(sqlite3_stmt *st, struct node_row *row);

#endif
