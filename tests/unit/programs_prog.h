/*
 * A program for the tests of rampfs/programs: a process of its own, with a little agent that is
 * written against session.h. It does what the test orders over a socket.
 *
 * It is a program file of its own (PROG_PATH), without a sanitizer: it forks and clones, ends its
 * main thread, and touches memory that is not there, which no sanitizer bears.
 */
#ifndef RAMP_PROGRAMS_PROG_H
#define RAMP_PROGRAMS_PROG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/session.h"

enum prog_op {
	/* Starts the agent; its thread in the report's value. The order's value:
	    1: never answers a command
	    2: sends a file that is no userfaultfd
	    3: sends nothing to the broker
	    4: answers every DROP with stale answers, for ever
	    5: says that it has carried out a SWAP, and has not
	    7: leaves the first BACK unanswered
	    8: leaves the first SWAP unanswered
	    9: unmaps for a while what a GONE takes
	   10: computes for 3 s before it answers a DROP
	   11: refuses the first MAP and leaves the next unanswered
	   13: moves page tables away (RESERVE, MOVE, RETURN), as those after it; those before it
	       are older ones, which drop entries
	   14: moves them to another place than it was told
	   15: stops its process before the first RETURN
	   16: has a second userfaultfd, and so can be closed to stores
	   17: asks before its mappings grow (PROG_GROW) */
	PROG_SESSION,
	PROG_ATTACH,	   /* token, offset, len, prot, flags; value: hangs up after this many ms */
	PROG_LOAD,	   /* a u64 at addr; value in the report; -SIGBUS */
	PROG_STORE,	   /* value at addr */
	PROG_SYSCALL,	   /* write(2) of 64 bytes at addr into a pipe; -errno */
	PROG_WRITERS,	   /* value threads that store all over [addr, addr + len) */
	PROG_STOP_WRITERS, /* value: wrong values they saw; all: how many stores */
	/* A child with a session of its own adopts everything and loads a u64 at addr. The order:
	   value 1: without the token, as after a daemon's death
	   len: it gives up after this many ms; value in the report: whether it had addr mapped
	   within 5 s after that
	   flags: its agent, as for PROG_SESSION; value in the report: the errno of an ADOPT that
	   fails */
	PROG_FORK,
	PROG_MPROTECT, /* addr, len, prot */
	PROG_MUNMAP,   /* addr, len */
	PROG_PUNCH,    /* value: the segment; offset, len */
	PROG_MAP_RAW,  /* maps the file at `path` at addr, without a session */
	PROG_TEXT,     /* the last line that the agent had to say; value: how many */
	PROG_SESSIONS, /* value: how often it had a session */
	PROG_REMAP,    /* mremap(2) of offset bytes (0: a copy) at addr to value, len bytes there */
	PROG_MAIN_ENDS, /* the main thread; another one carries out the orders after this */
	/* Another session, which names a fresh thread as its agent; that thread's id in the
	   report's value. The order:
	   value: names that thread, which is another process's
	   flags 1: a process that shares the memory names itself
	   flags 2: the thread computes, for 15 s
	   flags 3: the thread becomes another program by exec, after 3 s */
	PROG_NAME,
	PROG_UNNAME, /* the last of those sessions ends */
	PROG_TICKET, /* FORK: the token in value and addr, of how many ranges in all */
	PROG_ADOPT,  /* token */
	/* A thread that splits the mapping of len bytes at addr by mprotect(2) and makes it whole
	   again, for ever; value 0: no more. */
	PROG_SPLIT,
	PROG_ADVISE, /* madvise(2): addr, len, value */
	PROG_LOCK,   /* mlock(2): addr, len; value: munlock(2) after it */
	PROG_EXEC,   /* becomes a program that sleeps; no report */
	PROG_GROW,   /* asks whether mappings may grow */
};

struct prog_order {
	enum prog_op op;
	uint64_t token[2], addr, offset, len, value;
	uint32_t prot, flags;
	char path[256];
};

struct prog_report {
	int32_t result;
	uint64_t value, addr, all;
	char text[SESSION_TEXT_MAX];
};

struct prog {
	pid_t pid;
	int sock;
};

void prog_start(struct prog *prog, const char *session_path);
/* Kills it and waits for it. */
void prog_end(struct prog *prog);
void prog_send(struct prog *prog, const struct prog_order *order);
/* True when the report came within `ms`. */
bool prog_wait(struct prog *prog, struct prog_report *report, int ms);
/* Both; ends the test when nothing comes within 20 s. */
struct prog_report prog_do(struct prog *prog, const struct prog_order *order);

#endif
