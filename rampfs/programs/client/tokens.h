/*
 * One-time tokens: who may attach what (tokens.c). programs_token is in programs.h.
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
	ramp_segment_t id; /* of an open; 0: a fork's */
	int access_mode;
	struct process process; /* that may use it; a fork's: whose child */
	uint64_t made_ticks;	/* a fork's child is not older */
	uint32_t share;		/* of its user's */
	uint32_t count;
	struct adopt_range *ranges; /* a fork's */
};

int token_refused(struct ramp_err *err); /* -EPERM */
/* Whether the token was made for who asks: his own open, or a fork of his parent. 0;
   -EPERM: it was not; why he can't be looked at. */
int token_check(const struct token *token, struct client_request *request, struct ramp_err *err);
struct token *token_take(struct programs *p, const uint64_t secret[2]);
/* The token, whose process is set, is the table's, or freed. -EDQUOT. */
int token_add(struct programs *p, struct token *token, uint64_t secret[2], struct ramp_err *err);
void token_free(struct token *token);
/* Those that are too old. */
void tokens_expire(struct programs *p);
void tokens_close(struct programs *p);

#endif
