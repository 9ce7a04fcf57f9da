/*
 * In which mode a move goes. Control loop.
 *
 * A request that names a mode decides; else user.ramp.mode of the segment; else the mount option of the
 * segment's node; else the default. The answer of a move that went through says which it was, and why.
 *
 * Mode auto is decided when the target has room (source_weigh.c).
 *
 * How it fails: it does not. A mode that a move in steps can't have is lazy there.
 */
#include "source_mode.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/visible.h"

#include "link_speed.h"
#include "move_request_core.h"

void source_mode_words(char *out, size_t cap, const char *words)
{
	char *at = out;

	visible(out, cap, words);
	while ((at = strstr(at, "  ")))
		memmove(at, at + 1, strlen(at));
}

/* Says it in the answer. */
static void choose(struct move *m)
{
	if (m->request)
		snprintf(m->request->chosen, sizeof(m->request->chosen), "mode %s: %s",
			 transfer_mode_name(m->source.mode), m->source.why);
}

void source_mode_set(struct move *m, enum transfer_mode mode, const char *why, ...)
{
	struct move_source *s = &m->source;
	char words[sizeof(s->why)];
	va_list ap;

	va_start(ap, why);
	vsnprintf(words, sizeof(words), why, ap);
	va_end(ap);
	source_mode_words(s->why, sizeof(s->why), words);
	s->why_bytes = strlen(s->why);
	s->mode = mode;
	s->copy_mode = mode == TRANSFER_COPY;
	s->precopy_mode = mode == TRANSFER_PRECOPY;
	m->demand_only = mode == TRANSFER_DEMAND && !(m->request && m->request->spec.wait_stable);
	log_info("segment %llu moves in mode %s: %s", (unsigned long long)m->id,
		 transfer_mode_name(mode), s->why);
	choose(m);
}

void source_mode_add(struct move *m, const char *how)
{
	struct move_source *s = &m->source;
	char words[2 * sizeof(s->why)];

	snprintf(words, sizeof(words), "%s; %s", s->why, how);
	source_mode_words(s->why, sizeof(s->why), words);
	choose(m);
}

void source_mode_forget(struct move *m)
{
	if (m->source.why_bytes)
		m->source.why[m->source.why_bytes] = 0;
}

uint64_t source_mode_left_ms(const struct move *m)
{
	const struct move_request *req = m->request;
	uint64_t until_ms, now_ms = clock_ms();

	if (!req || !req->deadline_ms)
		return UINT64_MAX;
	until_ms = req->deadline_ms - req->spec.timeout_ms / 2;
	return until_ms > now_ms ? until_ms - now_ms : 0;
}

uint64_t source_mode_carries(const struct move *m, bool *known)
{
	const uint64_t limits[] = {m->limit_bytes_s, m->t->config.limit_bytes_s};
	uint64_t speed = link_speed(m->t, m->peer);
	unsigned side_by_side = m->queues ? pair_of(m->t, m->peer)->under_way : 1;

	if (known)
		*known = speed != 0;
	speed = speed ? speed : LINK_GUESS;
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (limits[i] && limits[i] < speed)
			speed = limits[i];
	return side_by_side > 1 ? speed / side_by_side : speed;
}

void source_mode_begin(struct move *m, const struct segment_row *row)
{
	const struct migrate_request *spec = &m->request->spec;
	enum transfer_mode mode = spec->mode;
	const char *why = "asked for";

	m->source.max_rounds = spec->max_rounds ? spec->max_rounds : TRANSFER_ROUNDS_DEFAULT;
	if (mode == TRANSFER_UNSAID) {
		mode = row->move ? (enum transfer_mode)(row->move - 1) : m->t->config.mode;
		why = row->move					   ? "user.ramp.mode"
		      : m->t->config.mode == TRANSFER_MODE_DEFAULT ? "the default"
								   : "mount option";
		if (spec->in_steps && mode == TRANSFER_AUTO) {
			mode = TRANSFER_LAZY;
			why = "it is moved in steps";
		}
	}
	m->source.by_auto = mode == TRANSFER_AUTO;
	source_mode_set(m, mode, "%s", why);
}
