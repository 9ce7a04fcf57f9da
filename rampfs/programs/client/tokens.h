/*
 * One-time tokens: which process may attach which segment (tokens.c). programs_token is in
 * programs.h.
 */
#ifndef RAMP_PROGRAMS_TOKENS_H
#define RAMP_PROGRAMS_TOKENS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "base/ids.h"
#include "programs/proc/process.h"

struct client_request;
struct programs;

struct adopt_range {
	ramp_segment_t id;
	uint64_t start, end, offset;
	uint32_t prot;
	bool writable, gone;
};

struct token {
	LIST_ENTRY(token) link;
	uint64_t secret[2], until_ms;
	ramp_segment_t id; /* of an open; 0: a fork's token */
	int access_mode;
	/* That may use it; of a fork's token: the parent of the child that may. */
	struct process process;
	uint64_t made_ticks; /* of a fork's token: the child is not older */
	uint32_t share;	     /* how much of its user's quota it takes */
	uint32_t count;
	struct adopt_range *ranges; /* of a fork's token, `count` */
};

int token_refused(struct ramp_err *err); /* returns -EPERM, with the text */
/* Checks that the token was made for the process that asks: for an open of its own, or for a
   fork of its parent. 0; -EPERM: it was not; or the errno of looking at the process. */
int token_check(const struct token *token, struct client_request *request, struct ramp_err *err);
/* Takes the token with that secret out of the table, for the caller; NULL: there is none. */
struct token *token_take(struct programs *p, const uint64_t secret[2]);
/* Puts a token, whose `process` is set, into the table and returns its secret; or frees it:
   -EDQUOT. */
int token_add(struct programs *p, struct token *token, uint64_t secret[2], struct ramp_err *err);
void token_free(struct token *token);
/* Drops those that are too old. */
void tokens_expire(struct programs *p);
void tokens_close(struct programs *p);

#endif
