/*
 * The bytes of commands and replies, as in log entries, messages and the table of results.
 *
 * A command travels with its origin: the node that proposes it, that node's life (counted by its
 * journal), its number in this life, and the lowest number that the node still waits for. The state
 * machine drops a command below the highest floor that it has seen of that node: so a late or
 * repeated copy can't be carried out after its first result was forgotten. The node keeps at most
 * META_WINDOW numbers open at once (Lee et al., RIFL, SOSP 2015).
 *
 * Only the fields that a command's type uses are encoded. Decoding checks every length and range
 * and leaves no field unset; unknown types and trailing bytes are -EPROTO.
 */
#ifndef RAMP_META_COMMAND_H
#define RAMP_META_COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "meta.h"

#define META_WINDOW	   128	/* number - lowest is below this */
#define META_RESULTS_KEPT  256	/* of each client: at least twice the window */
#define META_COMMAND_BYTES 1536 /* no encoded command is longer */
#define META_REPLY_BYTES   64

struct meta_origin {
	ramp_node_t node; /* 0: of no node, so never stale */
	uint64_t life, number, lowest;
};

/* Returns the length, or 0: cap is too small, or a field is out of its range. */
size_t command_encode(const struct meta_origin *origin, const struct meta_command *c, void *buf,
		      size_t cap);
/* Returns 0 or -EPROTO. */
int command_decode(const void *buf, size_t len, struct meta_origin *origin, struct meta_command *c);
/* Returns the length, or 0: cap is too small. */
size_t command_reply_encode(const struct meta_reply *r, void *buf, size_t cap);
/* Returns 0 or -EPROTO. */
int command_reply_decode(const void *buf, size_t len, struct meta_reply *r);

struct wire_w;
struct wire_r;
/* Encodes the part of a node's row that members tell each other (admission.c): number, name,
   address. */
void member_encode(struct wire_w *w, const struct node_row *row);
/* Decodes the next one. Returns false: there is none, or it is damaged. */
bool member_decode(struct wire_r *r, struct node_row *row);

/* Returns the level of the rules from which on the command may be proposed. */
uint64_t command_level(const struct meta_command *c);
const char *command_name(enum meta_command_type type); /* "CREATE"; "?" */

#endif
