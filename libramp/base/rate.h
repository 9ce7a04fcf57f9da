/*
 * A limit of bytes a second: a bucket that fills at that rate, and out of which is taken before bytes
 * are asked for or sent. Several threads may share one. Nothing here waits: rate_due_us says when to
 * come again.
 *
 * What is taken at once is a hundredth of a second's worth at most (a page at least), so that what
 * goes before limited traffic never waits for much of it.
 */
#ifndef RAMP_RATE_H
#define RAMP_RATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RATE_MIN                                                                                   \
	(UINT64_C(1) << 20) /* bytes a second: less keeps a connection silent for too long */

struct rate {
	_Atomic uint64_t bytes_s; /* 0: no limit */
	pthread_mutex_t lock;	  /* protects the rest */
	uint64_t bytes;		  /* in the bucket */
	uint64_t at_us;		  /* when it was filled last; 0: never */
};

/* Reads bytes a second, as size_parse. -EINVAL; -ERANGE: also less than RATE_MIN. */
int rate_parse(const char *text, uint64_t *bytes_s);

void rate_init(struct rate *rate, uint64_t bytes_s);
void rate_destroy(struct rate *rate);
/* Another limit from now on; 0: none. */
void rate_set(struct rate *rate, uint64_t bytes_s);
uint64_t rate_get(struct rate *rate);

/* Takes as many of `want` bytes as may move at once, in whole pages where `want` is. 0: none now. */
uint64_t rate_take(struct rate *rate, uint64_t want, uint64_t now_us);
/* Puts back what was taken, and did not move. */
void rate_put_back(struct rate *rate, uint64_t bytes);
/* Returns when rate_take will give something again; now_us where it would now. */
uint64_t rate_due_us(struct rate *rate, uint64_t now_us);

#endif
