#include "news.h"

#include <string.h>

void news_tell(struct move *m, enum session_event kind)
{
	struct programs_event event = {.kind = (uint8_t)kind, .id = m->id, .epoch = m->epoch};
	struct segment_row row;

	if (meta_segment(m->t->meta, m->id, &row) || row.unlinked)
		return;
	event.size = m->size;
	event.lost_pages = kind == SESSION_WHOLE ? m->target.lost_pages : 0;
	event.mode = row.mode;
	event.uid = row.uid;
	event.gid = row.gid;
	/* Under the name that it has, or gets, where it is. */
	memcpy(event.name,
	       row.phase == SEGMENT_MOVING && kind != SESSION_LEFT ? row.dst_name : row.name,
	       sizeof(event.name));
	if (kind == SESSION_COMING) {
		memcpy(event.name, m->name, sizeof(event.name));
		memcpy(event.name_there, row.name, sizeof(event.name_there));
	}
	memcpy(event.node, m->peer_name, sizeof(event.node));
	programs_announce(m->t->programs, &event);
}
