#include "rate.h"

#include <errno.h>

#include "page.h"
#include "size.h"

#define PIECES	  100u	     /* a second's worth is taken in as many pieces */
#define PIECE_MAX (2u << 20) /* bytes */
#define BURST	  50u	     /* part of a second that may have gathered */
#define SECOND_US UINT64_C(1000000)

int rate_parse(const char *text, uint64_t *bytes_s)
{
	int rc = size_parse(text, bytes_s);

	return rc ? rc : *bytes_s < RATE_MIN ? -ERANGE : 0;
}

void rate_init(struct rate *rate, uint64_t bytes_s)
{
	*rate = (struct rate){.bytes = 0};
	atomic_init(&rate->bytes_s, bytes_s);
	pthread_mutex_init(&rate->lock, NULL);
}

void rate_destroy(struct rate *rate)
{
	pthread_mutex_destroy(&rate->lock);
}

void rate_set(struct rate *rate, uint64_t bytes_s)
{
	pthread_mutex_lock(&rate->lock);
	if (atomic_load(&rate->bytes_s) != bytes_s) {
		atomic_store(&rate->bytes_s, bytes_s);
		rate->bytes = 0;
	}
	pthread_mutex_unlock(&rate->lock);
}

uint64_t rate_get(struct rate *rate)
{
	return atomic_load(&rate->bytes_s);
}

/* Returns how much is taken at once, in whole pages. */
static uint64_t piece_of(uint64_t bytes_s)
{
	uint64_t piece = page_down(bytes_s / PIECES);

	if (piece < RAMP_PAGE_BYTES)
		return RAMP_PAGE_BYTES;
	return piece < PIECE_MAX ? piece : PIECE_MAX;
}

static uint64_t most_of(uint64_t bytes_s)
{
	uint64_t most = bytes_s / BURST, two = 2 * piece_of(bytes_s);

	return most > two ? most : two;
}

/* The lock is held. */
static void fill(struct rate *rate, uint64_t bytes_s, uint64_t now_us)
{
	uint64_t most = most_of(bytes_s), us = now_us > rate->at_us ? now_us - rate->at_us : 0;
	uint64_t more;

	if (us >= SECOND_US) { /* the first time, too */
		rate->bytes = most;
		rate->at_us = now_us;
		return;
	}
	more = (uint64_t)((unsigned __int128)bytes_s * us / SECOND_US);
	if (more == 0)
		return; /* its part of a byte is not lost */
	rate->bytes = rate->bytes + more < most ? rate->bytes + more : most;
	rate->at_us = now_us;
}

uint64_t rate_take(struct rate *rate, uint64_t want, uint64_t now_us)
{
	uint64_t bytes_s = atomic_load(&rate->bytes_s), most;

	if (bytes_s == 0)
		return want;
	most = piece_of(bytes_s);
	want = want < most ? want : most;
	pthread_mutex_lock(&rate->lock);
	fill(rate, bytes_s, now_us);
	if (rate->bytes < want)
		want = 0;
	rate->bytes -= want;
	pthread_mutex_unlock(&rate->lock);
	return want;
}

void rate_put_back(struct rate *rate, uint64_t bytes)
{
	uint64_t bytes_s = atomic_load(&rate->bytes_s), most = most_of(bytes_s);

	if (bytes_s == 0)
		return;
	pthread_mutex_lock(&rate->lock);
	rate->bytes = rate->bytes + bytes < most ? rate->bytes + bytes : most;
	pthread_mutex_unlock(&rate->lock);
}

uint64_t rate_due_us(struct rate *rate, uint64_t now_us)
{
	uint64_t bytes_s = atomic_load(&rate->bytes_s), piece = piece_of(bytes_s), due = now_us;

	if (bytes_s == 0)
		return now_us;
	pthread_mutex_lock(&rate->lock);
	fill(rate, bytes_s, now_us);
	if (rate->bytes < piece)
		due = rate->at_us + (piece - rate->bytes) * SECOND_US / bytes_s + 1;
	pthread_mutex_unlock(&rate->lock);
	return due > now_us ? due : now_us;
}
