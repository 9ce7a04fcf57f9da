/*
 * The hello (hello.c): two ends that know the key talk to each other, and the input is a man in the
 * middle that changes, cuts, repeats or makes up the bytes between them. The first byte: which end
 * the changes hit, and whether the middle takes one end's place from the start.
 *
 * No end is ever done with a talk in which a byte was changed, and both see each other as they are
 * where none was.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "transport/hello_io.h"

#define FRAMES 4

enum choice { HITS_ACCEPTOR = 1, MADE_UP = 2, WANTS_ANOTHER = 4 };

static struct hello_self selves[2];

struct end {
	struct hello hello;
	int fd, other; /* its own end of a socket pair, and the middle's */
	int rc;
};

static int hello_on(struct hello *hello, int fd, struct ramp_err *err)
{
	struct stream stream = stream_plain(fd);

	return hello_run(hello, &stream, err);
}

static void start(struct end *end)
{
	int pair[2];

	fuzz_rule(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	end->fd = pair[0];
	end->other = pair[1];
	end->rc = -EAGAIN;
}

static void run(struct end *end)
{
	struct ramp_err err = {0};

	if (end->rc != -EAGAIN)
		return;
	end->rc = hello_on(&end->hello, end->fd, &err);
	fuzz_rule(end->rc == 0 || end->rc == -EAGAIN || err.text[0]);
}

/* Carries the bytes of `from` to `to`; `in` != NULL: with one change. True: they were changed. */
static bool carry(struct end *from, struct end *to, struct fuzz_in *in)
{
	uint8_t bytes[1024];
	ssize_t n = recv(from->other, bytes, sizeof(bytes) / 2, MSG_DONTWAIT);
	size_t at, len;
	bool changed = false;

	if (n <= 0)
		return false;
	len = (size_t)n;
	if (in && in->left) {
		uint8_t how = fuzz_u8(in) % 4, with = fuzz_u8(in);

		at = fuzz_u8(in) % len;
		if (how == 1) {
			bytes[at] ^= with;
			changed = with != 0;
		} else if (how == 2) {
			len = at;
			changed = true;
		} else if (how == 3) {
			memmove(bytes + at + 1, bytes + at, len++ - at);
			bytes[at] ^= with | 1; /* or it might be one more of the same */
			changed = true;
		}
	}
	(void)!send(to->other, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	return changed;
}

static void made_up(struct end *end, struct fuzz_in *in)
{
	run(end);
	(void)!send(end->other, in->at, in->left, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(end->other, SHUT_WR);
	run(end);
	fuzz_rule(end->rc != 0 && end->rc != -EAGAIN);
}

static void talk(struct end ends[2], uint8_t choices, struct fuzz_in *in)
{
	bool hits_acceptor = choices & HITS_ACCEPTOR, changed = false;

	for (int i = 0; i < FRAMES; i++) {
		run(&ends[0]);
		changed |= carry(&ends[0], &ends[1], hits_acceptor ? in : NULL);
		run(&ends[1]);
		changed |= carry(&ends[1], &ends[0], hits_acceptor ? NULL : in);
	}
	run(&ends[0]);
	if (choices & WANTS_ANOTHER) {
		fuzz_rule(ends[0].rc != 0 && ends[1].rc != 0);
	} else if (!changed) {
		fuzz_rule(ends[0].rc == 0 && ends[1].rc == 0);
		fuzz_rule(ends[0].hello.peer.node == 2 && ends[1].hello.peer.node == 1);
		fuzz_rule(ends[1].hello.peer.class == HELLO_DEMAND);
	} else {
		/* The last frame may have been hit, when the other end was done already. */
		fuzz_rule(ends[0].rc != 0);
		fuzz_rule(!hits_acceptor || ends[1].rc != 0 || !in->left);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_in in = {data, size};
	uint8_t choices = fuzz_u8(&in);
	struct end ends[2];

	for (unsigned int i = 0; i < 2 && !selves[1].node; i++) {
		uint8_t key[HMAC_BYTES] = "the cluster's key";

		fuzz_rule(hello_self_init(&selves[i], key, NULL) == 0);
		selves[i].node = i + 1;
		selves[i].incarnation = selves[i].instance = 100 + i;
	}
	start(&ends[0]);
	start(&ends[1]);
	hello_dial(&ends[0].hello, &selves[0], choices & WANTS_ANOTHER ? 3 : 2, 0, HELLO_DEMAND);
	hello_accept(&ends[1].hello, &selves[1], NULL, NULL);
	if (choices & MADE_UP)
		made_up(&ends[choices & HITS_ACCEPTOR], &in);
	else
		talk(ends, choices, &in);
	for (int i = 0; i < 2; i++) {
		close(ends[i].fd);
		close(ends[i].other);
	}
	return 0;
}

void fuzz_seeds(void)
{
	static const uint8_t opening[] = {
		MADE_UP | HITS_ACCEPTOR, 0x52, 0x41, 0x4d, 0x50, PEER_VERSION, 0, 1, 32};
	static const uint8_t offer[] = {MADE_UP, 0x52, 0x41, 0x4d, 0x50, PEER_VERSION, 0, 2, 64};
	uint8_t bytes[80] = {0};

	fuzz_seed("untouched", "\0", 1);
	fuzz_seed("wants-another", "\4", 1);
	fuzz_seed("flips-the-second", "\1\0\0\0\1\10\50", 7);
	memcpy(bytes, opening, sizeof(opening));
	fuzz_seed("opening", bytes, 41);
	memcpy(bytes, offer, sizeof(offer));
	fuzz_seed("offer", bytes, 73);
}
