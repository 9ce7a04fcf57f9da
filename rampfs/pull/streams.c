/*
 * How many threads prefetch.
 *
 * A number that the administrator gives counts as it is. Else a prefetch begins with one. While at
 * least one processor idles, another is opened, and stays if at least a tenth more comes with it;
 * where it does not help it is closed, and none is tried for TRY_AGAIN_US. Where no processor idles
 * any more, one is closed.
 */
#include "streams.h"

#include "base/kernel.h"
#include "pull.h"

#define MEASURED_US	50000u	    /* at least ... */
#define MEASURED_BYTES	(32u << 20) /* ... and until they have come ... */
#define MEASURED_MAX_US 1000000u    /* ... but not longer */
#define SETTLE_US	100000u	    /* a connection begins slowly */
#define TRY_AGAIN_US	5000000u
#define HELPS		10 /* the tenth part */
/* Percent of one processor. */
#define IDLE 100u
#define BUSY 10u

unsigned streams_most(unsigned wanted)
{
	unsigned processors = kernel_processors();

	if (wanted)
		return wanted < PULL_STREAMS_MAX ? wanted : PULL_STREAMS_MAX;
	return processors < PULL_STREAMS_MAX ? processors : PULL_STREAMS_MAX;
}

void streams_init(struct streams *streams, unsigned wanted)
{
	*streams = (struct streams){
		.most = streams_most(wanted),
		.fixed = wanted != 0,
		.open = wanted ? streams_most(wanted) : 1,
	};
}

static void streams_measure(struct streams *streams, const struct streams_sample *now)
{
	streams->since_us = now->us;
	streams->bytes = now->bytes;
	streams->idle_us = now->idle_us;
}

static void streams_change(struct streams *streams, const struct streams_sample *now, bool more)
{
	streams->open += more ? 1u : -1u;
	streams->tries = more;
	streams->since_us = 0;
	streams->settle_us = now->us + SETTLE_US;
	if (!more)
		streams->try_us = now->us + TRY_AGAIN_US;
}

/* Changes the number where what was measured calls for it. */
static void streams_judge(struct streams *streams, const struct streams_sample *now)
{
	uint64_t us = now->us - streams->since_us;
	uint64_t rate = (now->bytes - streams->bytes) * 1000000 / us;
	uint64_t idle = (now->idle_us - streams->idle_us) * 100 / us;
	bool helps = rate >= streams->rate_before + streams->rate_before / HELPS;

	if (streams->open > 1 && ((streams->tries && !helps) || idle < BUSY)) {
		streams_change(streams, now, false);
	} else if (streams->open < streams->most && idle >= IDLE && now->us >= streams->try_us) {
		streams->rate_before = rate;
		streams_change(streams, now, true);
	} else {
		streams->tries = false;
		streams_measure(streams, now);
	}
}

bool streams_is_due(const struct streams *streams, uint64_t us, uint64_t bytes, bool moves)
{
	if (streams->fixed || streams->most == 1)
		return false;
	if (!moves)
		return streams->open > 1 || streams->since_us;
	if (streams->since_us == 0)
		return us >= streams->settle_us;
	return us >= streams->since_us + MEASURED_US && (bytes - streams->bytes >= MEASURED_BYTES ||
							 us >= streams->since_us + MEASURED_MAX_US);
}

unsigned streams_look(struct streams *streams, const struct streams_sample *now)
{
	if (!streams_is_due(streams, now->us, now->bytes, now->moves))
		return streams->open;
	if (!now->moves) {
		streams->open = 1; /* the next source may be another, on another way */
		streams->tries = false;
		streams->since_us = streams->settle_us = streams->try_us = 0;
	} else if (streams->since_us == 0) {
		streams_measure(streams, now);
	} else {
		streams_judge(streams, now);
	}
	return streams->open;
}
