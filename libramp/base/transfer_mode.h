/*
 * How the pages of a segment follow when it moves (contrib/doc/design.md, "The transfer"). The numbers
 * travel in messages (base/session.h, transport/proto.h), and, plus one, in a segment's row.
 */
#ifndef RAMP_TRANSFER_MODE_H
#define RAMP_TRANSFER_MODE_H

enum transfer_mode {
	TRANSFER_LAZY,	  /* ownership first; pages follow, on demand and in the background */
	TRANSFER_DEMAND,  /* ownership first; pages follow as they are touched */
	TRANSFER_COPY,	  /* every page is there before ownership passes */
	TRANSFER_PRECOPY, /* pages go ahead in rounds, and programs continue */
	TRANSFER_AUTO,	  /* what pays: lazily, by pre-copy, or little by copy */
	TRANSFER_MODES,
	TRANSFER_UNSAID = 255, /* of a request: as the segment or the mount says */
};

/* Where nothing says how. */
#define TRANSFER_MODE_DEFAULT TRANSFER_AUTO

/* How many rounds a pre-copy may have, the first one included. */
#define TRANSFER_ROUNDS_DEFAULT 5
#define TRANSFER_ROUNDS_MAX	100

#define TRANSFER_MODE_NAMES "auto, lazy, demand, copy, precopy"
/* "lazy" and so on; "default" for any number that is no mode. */
const char *transfer_mode_name(unsigned mode);
/* Returns an enum transfer_mode; -EINVAL: there is no mode of that name. */
int transfer_mode_of(const char *name);

#endif
