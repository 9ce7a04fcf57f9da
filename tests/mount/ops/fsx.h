/*
 * Shared by the parts of the random tester: fsx.c (operations), fsx_worker.c (a process on each
 * node), fsx_driver.c (asking the workers, drawing, the model).
 */
#ifndef FSX_H
#define FSX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define NODES	  3
#define PAGE	  4096L
#define MIB	  (1L << 20)
#define HUGE_PAGE (2 * MIB)
#define GIB	  (1L << 30)
#define ZONE	  (4 * MIB)
#define IO_MAX	  (1 * MIB)
#define MAP_END	  (10 * GIB)
#define BLOCKS_OK (64 * MIB / 512) /* room for three zones, their huge pages and a move's slack */
#define LOGGED	  50
#define PATIENCE  60 /* seconds */
#define NAME	  "fsx"

enum verb {
	OPEN,
	READ,
	WRITE,
	APPEND,
	TRUNCATE,
	ALLOCATE,
	SEEK,
	SYNC,
	STAT,
	MAP,
	UNMAP,
	REMAP,
	LOAD,
	STORE,
	LOAD_BY_CALL,
	STORE_BY_CALL,
	LOAD_BY_CHILD,
	COPY_INSIDE,
	ADVISE,
	PROTECT,
	LOCK,
	CORE,
	RENAME,
};

struct call {
	enum verb verb;
	int how;	/* flags, whence, advice or protection, by the verb */
	long off, len;	/* of the file */
	long from;	/* COPY_INSIDE: whence */
	int owner, dst; /* the directory's node; RENAME: and the target's */
};

struct answer {
	long rc;
	int code;   /* errno where rc is -1 */
	int signal; /* SIGBUS, SIGSEGV */
	long blocks;
};

/* Shared by the driver, which writes a call, and one worker, which writes its answer. */
struct wire {
	struct call call;
	struct answer answer;
	uint8_t data[IO_MAX];
};

struct node {
	pid_t pid;
	int sock;
	struct wire *wire;
	bool mapped, ever_locked;
	long map_off, map_len;
	int prot;
};

static inline long round_up(long n)
{
	return (n + PAGE - 1) / PAGE * PAGE;
}

extern const char *mounts[NODES];

/* fsx_worker.c */
void path_of(char *path, size_t cap, int node, int dir);
void worker(int node, int sock, struct wire *wire) __attribute__((noreturn));

/* fsx_driver.c */
extern const long zones[3];
extern struct node nodes[NODES];
extern int owner, model;
extern unsigned long seed, op;
extern uint8_t expected[IO_MAX];

void draw_from(unsigned long new_seed);
uint64_t draw64(void);
long draw(long below);
void draw_range(long *off, long *len);
long draw_length(void);
bool in_zone(long off, long len);
bool draw_mapped(long *off, long *len, long end);
bool draw_mapped_pages(long *off, long *len, long end);
void fill(uint8_t *data, long len);

void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
const struct answer *ask(int n, const struct call *c);
void must(const struct call *c, long want);
void must_die(int n, const struct call *c, int number);
void must_refuse(int n, const struct call *c, int code);

long model_size(void);
void model_did(long rc, const char *what);
void same_bytes(const uint8_t *got, long n, long off);

#endif
