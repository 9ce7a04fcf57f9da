/*
 * What programs that subscribe hear of moves (programs_announce).
 */
#ifndef RAMP_NEWS_H
#define RAMP_NEWS_H

#include "base/session.h"
#include "move.h"

/* Tells subscribers of this node what has become of the move's segment. A segment of which the
   tables know nothing any more is told of to programs that were asked alone. Control loop. */
void news_tell(struct move *m, enum session_event kind);
/* Tells of a round that the target has read, and how many pages were stored into since. Control loop. */
void news_round(struct move *m, uint64_t left_pages);
/* Tells the receiver that the move's segment is coming. Returns whether it wants the pages on demand alone. Control
   loop. */
bool news_coming(struct move *m);
/* Asks the programs of this node that want to be asked before the move's segment leaves. */
void news_ask(struct move *m);

#endif
