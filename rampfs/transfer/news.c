#include "news.h"

#include <errno.h>
#include <string.h>

/* Of what comes, or has come, to this node. */
static bool news_is_there(enum session_event kind)
{
	return kind < SESSION_ASKED && kind != SESSION_LEFT;
}

static struct programs_event news_event(struct move *m, enum session_event kind)
{
	struct programs_event event = {.kind = (uint8_t)kind, .id = m->id, .epoch = m->epoch};
	struct segment_row row;

	event.size = m->size;
	event.pages = kind == SESSION_WHOLE ? m->target.pulled.lost : 0;
	memcpy(event.name, m->name, sizeof(event.name));
	memcpy(event.node, m->peer_name, sizeof(event.node));
	event.asked_alone = meta_segment(m->t->meta, m->id, &row) || row.unlinked;
	if (event.asked_alone)
		return event;
	event.mode = row.mode;
	event.uid = row.uid;
	event.gid = row.gid;
	/* Under the name that it has, or gets, where it is. */
	memcpy(event.name,
	       row.phase == SEGMENT_MOVING && news_is_there(kind) ? row.dst_name : row.name,
	       sizeof(event.name));
	if (kind == SESSION_COMING) {
		memcpy(event.name, m->name, sizeof(event.name));
		memcpy(event.name_there, row.name, sizeof(event.name_there));
	}
	return event;
}

void news_tell(struct move *m, enum session_event kind)
{
	struct programs_event event = news_event(m, kind);

	if (kind == SESSION_FAILED) {
		event.code = m->source.fail_code ? m->source.fail_code : EHOSTUNREACH;
		event.text = m->source.fail_code ? m->source.fail_text
						 : "the target gave up: the segment stays";
	}
	programs_announce(m->t->programs, &event);
}

void news_round(struct move *m, uint64_t left_pages)
{
	struct programs_event event = news_event(m, SESSION_ROUND);

	event.pages = left_pages;
	programs_announce(m->t->programs, &event);
}

bool news_coming(struct move *m)
{
	struct programs_event event = news_event(m, SESSION_COMING);

	programs_announce(m->t->programs, &event);
	return programs_wants_demand(m->t->programs, &event);
}

void news_ask(struct move *m)
{
	struct programs_event event = news_event(m, SESSION_ASKED);

	event.within_ms = m->t->config.quiesce_ms;
	programs_ask(m->t->programs, &event);
}
