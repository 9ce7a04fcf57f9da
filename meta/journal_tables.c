/*
 * The tables of the state machine, and how each is dumped and restored. See journal_tables.h.
 */
#include "journal_tables.h"

#include "journal_rows.h"

const struct journal_table journal_tables[] = {
	{"CREATE TABLE counter (k TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID",
	 "SELECT k, v FROM counter ORDER BY k", "INSERT INTO counter VALUES (?,?)",
	 "DELETE FROM counter", 2},
	{"CREATE TABLE member (node INTEGER PRIMARY KEY, role INTEGER NOT NULL)",
	 "SELECT node, role FROM member ORDER BY node", "INSERT INTO member VALUES (?,?)",
	 "DELETE FROM member", 2},
	{"CREATE TABLE node (node INTEGER PRIMARY KEY, name TEXT NOT NULL, address TEXT NOT NULL, "
	 "incarnation INTEGER NOT NULL, fenced INTEGER NOT NULL, instance INTEGER NOT NULL, "
	 "capacity INTEGER NOT NULL, role INTEGER NOT NULL);"
	 "CREATE INDEX node_name ON node (name)",
	 "SELECT " NODE_COLUMNS " FROM node ORDER BY node",
	 "INSERT INTO node (" NODE_COLUMNS ") VALUES (?,?,?,?,?,?,?,?)", "DELETE FROM node", 8},
	{"CREATE TABLE past (node INTEGER NOT NULL, incarnation INTEGER NOT NULL, "
	 "PRIMARY KEY (node, incarnation)) WITHOUT ROWID",
	 "SELECT node, incarnation FROM past ORDER BY node, incarnation",
	 "INSERT INTO past VALUES (?,?)", "DELETE FROM past", 2},
	{"CREATE TABLE segment (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, "
	 "phase INTEGER NOT NULL, unlinked INTEGER NOT NULL, node INTEGER NOT NULL, "
	 "node_inc INTEGER NOT NULL, dst INTEGER NOT NULL, dst_inc INTEGER NOT NULL, "
	 "src INTEGER NOT NULL, src_inc INTEGER NOT NULL, k_source INTEGER NOT NULL, "
	 "k_ticket INTEGER NOT NULL, k_epoch INTEGER NOT NULL, name TEXT NOT NULL, "
	 "dst_name TEXT NOT NULL, size INTEGER NOT NULL, mode INTEGER NOT NULL, "
	 "uid INTEGER NOT NULL, gid INTEGER NOT NULL, atime INTEGER NOT NULL, "
	 "atime_ns INTEGER NOT NULL, mtime INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, "
	 "ctime INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, extent_addr INTEGER NOT NULL, "
	 "extent_len INTEGER NOT NULL, extent_asked INTEGER NOT NULL, pages INTEGER NOT NULL, "
	 "mmap INTEGER NOT NULL);"
	 "CREATE INDEX segment_node ON segment (node, id);"
	 "CREATE INDEX segment_dst ON segment (dst) WHERE dst <> 0;"
	 "CREATE INDEX segment_src ON segment (src) WHERE src <> 0;" JOURNAL_SEGMENT_USE,
	 "SELECT " SEGMENT_COLUMNS " FROM segment ORDER BY id",
	 "INSERT INTO segment (" SEGMENT_COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
	 "?,?,?,?,?,?,?,?,?,?,?)",
	 "DELETE FROM segment", 30},
	{"CREATE TABLE name (node INTEGER NOT NULL, name TEXT NOT NULL, "
	 "segment INTEGER NOT NULL, reserved INTEGER NOT NULL, PRIMARY KEY (node, name)) "
	 "WITHOUT ROWID",
	 "SELECT node, name, segment, reserved FROM name ORDER BY node, name",
	 "INSERT INTO name VALUES (?,?,?,?)", "DELETE FROM name", 4},
	{"CREATE TABLE extent (addr INTEGER PRIMARY KEY, len INTEGER NOT NULL, "
	 "segment INTEGER NOT NULL)",
	 "SELECT addr, len, segment FROM extent ORDER BY addr", "INSERT INTO extent VALUES (?,?,?)",
	 "DELETE FROM extent", 3},
	/* No free place for an extent of len is below addr: the search begins there. */
	{"CREATE TABLE hint (len INTEGER PRIMARY KEY, addr INTEGER NOT NULL)",
	 "SELECT len, addr FROM hint ORDER BY len", "INSERT INTO hint VALUES (?,?)",
	 "DELETE FROM hint", 2},
	/* used: the index of the client's last command's entry. */
	{"CREATE TABLE client (client INTEGER PRIMARY KEY, place INTEGER NOT NULL, "
	 "used INTEGER NOT NULL)",
	 "SELECT client, place, used FROM client ORDER BY client",
	 "INSERT INTO client VALUES (?,?,?)", "DELETE FROM client", 3},
	{"CREATE TABLE result (client INTEGER NOT NULL, number INTEGER NOT NULL, "
	 "place INTEGER NOT NULL, reply BLOB NOT NULL, PRIMARY KEY (client, number)) "
	 "WITHOUT ROWID",
	 "SELECT client, number, place, reply FROM result ORDER BY client, number",
	 "INSERT INTO result VALUES (?,?,?,?)", "DELETE FROM result", 4},
	{"CREATE TABLE floor (node INTEGER PRIMARY KEY, life INTEGER NOT NULL, "
	 "lowest INTEGER NOT NULL)",
	 "SELECT node, life, lowest FROM floor ORDER BY node", "INSERT INTO floor VALUES (?,?,?)",
	 "DELETE FROM floor", 3},
};
const size_t journal_n_tables = sizeof(journal_tables) / sizeof(journal_tables[0]);
