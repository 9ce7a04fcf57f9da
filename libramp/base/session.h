/*
 * The protocol between the daemon and the processes of its machine: the shim's agents, the shim's
 * calling threads, and the tools.
 *
 * All connections go to one SOCK_SEQPACKET Unix socket (its path: RAMP_IOC_ATTACH, RAMP_IOC_INFO).
 * One packet is one message: u16 version, u16 type, then the fields that the table below names, in
 * the order of struct session_msg, little-endian, by wire.h. The first message says what kind of
 * connection it is:
 *
 *   HELLO                                an agent's session, for the life of its process
 *   ATTACH, FORK, ADOPT, DETACH, PUNCH, GROW   throw-away: one request, one RESULT, closed
 *   MIGRATE                              a tool: PROGRESS..., one ANSWER, closed
 *   BATCH                                a tool: VERDICTs, one ANSWER, closed
 *   CONNECT                              a program of the C API: HELD..., one ANSWER, closed
 *   PULL, GIVE_UP                        a program of the C API: PROGRESS, one ANSWER, closed
 *   MEMBER                               a tool: one ANSWER, closed
 *   LISTEN                               a program of the C API: EVENT..., until it hangs up
 *
 * File descriptors travel only from the daemon to the agent, beside WELCOME, MAP, GONE and BACK.
 * The daemon receives without a control buffer, so the kernel drops descriptors that are sent to
 * it. The one that must reach the daemon, the userfaultfd, goes over a socket pair of its own to
 * the broker, a child process of the daemon that checks what kind of file it is.
 *
 * The session, from the agent's side ("->" agent to daemon):
 *
 *   -> HELLO{serial, flags, tid}          tid: gettid() of the agent, as the agent sees it;
 *                                         flags: SESSION_RECONNECT where it has a userfaultfd,
 *                                         _MOVES where it knows RESERVE, MOVE and RETURN, _AWAY
 *                                         where page tables are away that a MOVE has moved; _GROWS
 *                                         where it asks (GROW) before a mapping grows, _GROWN where
 *                                         it has asked
 *   <- WELCOME{serial, result, text}      fds: [0] the broker's socket; [1] /dev/userfaultfd,
 *                                         without RECONNECT only. result EPERM (uffd_group),
 *                                         EUSERS (too many), EPROTO: text says why, no fds,
 *                                         the connection is closed
 *      the agent makes its userfaultfds: ioctl(fd, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK),
 *      session_send_uffds() on the broker's socket, closes that socket and /dev/userfaultfd, keeps
 *      its userfaultfds for as long as it lives (never UFFDIO_API: that is the daemon's). The second
 *      one closes segments to stores while loads continue. An older agent has none, and an older daemon
 *      takes none
 *   <- READY{serial, result, text}        from now on attaches of this process succeed. result: the
 *                                         userfaultfd was refused, text says why; the connection
 *                                         is closed. serial: SESSION_KNOWS_MOVE, or 0 of an older
 *                                         daemon: then the agent unmaps what is away, as if it had
 *                                         been dropped; and SESSION_KNOWS_GROW after _GROWS: else
 *                                         mappings grow without a GROW
 *   <- commands, each answered -> DONE{serial, result, addr}, in the order in which they come:
 *
 *   MAP{serial, segment, addr, len, offset, prot, flags} + fd
 *      mmap(addr, len, PROT_NONE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, offset), MADV_DONTFORK,
 *      with SESSION_NOHUGE also MADV_NOHUGEPAGE; close(fd). `prot` is what PROTECT will set (the
 *      kernel refuses more than the fd allows). With SESSION_PRIVATE: MAP_PRIVATE instead of
 *      MAP_SHARED. So are the mappings of read-only opens, since the kernel takes no userfaultfd on
 *      a shared one that could never be written; they show the same pages, and the shim refuses
 *      them PROT_WRITE (EACCES) as the kernel would. Parts of the range that map this segment
 *      already may be left as they are. On failure nothing new is mapped.
 *   PROTECT{serial, addr, len, prot}      mprotect(): the program may touch it from now on
 *   UNMAP{serial, addr, len}              munmap(): an attach failed after MAP
 *   DROP{serial, segment, ranges}         urgent: madvise(MADV_DONTNEED_LOCKED) of each range
 *                                         (MADV_DONTNEED where the kernel says EINVAL). ENOMEM
 *                                         (part of it is not mapped any more) counts as success.
 *      Without ranges: asks whether the segment may leave. EPERM: a mapping of it is sealed.
 *   RESERVE{serial, segment, addr, len, scratch}   before a MOVE: keeps [scratch, scratch + len) free
 *                                         for the page tables of the mapping at addr. scratch
 *                                         and addr are equal modulo 1 GiB, so that whole tables
 *                                         move. EEXIST: something is mapped there.
 *                                         len 0: nothing is kept; a MOVE or DROP comes soon (EINVAL
 *                                         of an older agent).
 *   MOVE{serial, segment, ranges}         urgent, like DROP: mremap(addr, len, len, MREMAP_MAYMOVE |
 *                                         MREMAP_FIXED | MREMAP_DONTUNMAP, scratch) of all that
 *                                         was reserved in the ranges, one mapping after the other;
 *                                         what was not reserved, or refuses, is dropped. Each
 *                                         mremap of a registered mapping ends when the daemon has
 *                                         read its event; if the daemon dies first, a thread of
 *                                         the agent's reads it.
 *   RETURN{serial, flags, segment}        mremap(scratch, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
 *                                         addr) of all that was moved: of the parts that the
 *                                         program still has, with the protection that it wants by
 *                                         now. The rest, and what was only reserved, is unmapped.
 *                                         SESSION_FORGET: all is unmapped, after the answer;
 *                                         with SESSION_NOW before it.
 *   GONE{serial, segment, addr, len, text} + fd (an empty file, O_RDONLY)
 *      z = mmap(NULL, len, the range's present protection, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
 *      MADV_DONTFORK; mremap(z, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, addr); close(fd). Then
 *      DONE, then `text`, if it is not empty, as a line to the user. PRIVATE: a store to it must
 *      be SIGBUS, as a load is, which takes PROT_WRITE on a file that is open for reading.
 *      It is done even if nothing is mapped at addr (a fork's child).
 *      If the process's limits allow no second mapping of that length, z is mapped over the
 *      range at once; if they allow none that can be written, without PROT_WRITE (a store is
 *      SIGSEGV then); if they allow none at all, or no descriptor (EMFILE), the range is unmapped:
 *      a touch is SIGSEGV, and the range is not put back.
 *   BACK{serial, segment, addr, len, offset, prot, flags} + fd
 *      z = mmap(NULL, len, prot, MAP_SHARED, fd, offset), MADV_DONTFORK, flags as for MAP;
 *      close(fd); DONE with addr = z. It is not to be touched before SWAP. SESSION_SECOND: the daemon
 *      registers it with the second userfaultfd, of which the agent reads the events from now on.
 *   SWAP{serial, addr, len, scratch}
 *      mremap(scratch, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, addr), or one for each part that
 *      the program has protected differently meanwhile; after an errno the first of these may be
 *      in place. It waits in the kernel until the daemon has read the remap event: so it is done
 *      by another thread than the agent, which must be able to connect again meanwhile. A daemon
 *      accepts remap events that it did not ask for.
 *   SAY{serial, text}                     a line to the user (LOST pages); DONE once it is written
 *                                         or can't be
 *
 * `text` has no newline. In GONE and SAY it begins with "rampfs: "; in RESULT, READY, WELCOME and
 * ANSWER it does not, and the reader puts its own words in front.
 *
 * A session that hangs up means that the daemon has died or is being upgraded. The agent connects
 * again, for ever, with a pause of 1 ms that grows to 100 ms (while the keeper of the listening
 * socket lives, connect(2) just waits), and sends HELLO with RECONNECT. The daemon finds its
 * mappings in /proc; the agent need not, and can't, tell them. The session also ends when the
 * process execs or exits.
 *
 * Throw-away requests. The process is the one that connected (SO_PEERCRED). The answer is
 * RESULT{result, segment, addr, len, token, all, text}; a field that a request does not define is 0.
 * If the client hangs up before its turn has come, ATTACH, FORK, ADOPT and PUNCH are not done.
 *
 *   ATTACH{token, offset, len, prot, flags}   token of RAMP_IOC_ATTACH; prot: PROT_*; flags:
 *      SESSION_NOHUGE, SESSION_REPLACE. offset and len are page-aligned by the caller. The agent
 *      has carried out MAP and PROTECT when the RESULT comes: addr is the mapping's address, always
 *      extent + offset, len as asked, all the extent's length. The process must have a session, or
 *      get one within 5 s. The shim counts repeated mappings of the same range by itself and asks
 *      once; SESSION_REPLACE: the range is mapped by an open with less access, and BACK and SWAP
 *      put the new mapping in its place. SESSION_AHEAD: the segment, for which this node has room,
 *      is mapped as one that has left, and comes back (token of RAMP_IOC_AHEAD). MAP_PRIVATE is not attached: FUSE serves it.
 *      EACCES prot is more than the open allows; EPERM the token is used, old, of another process
 *      or made up; ENOMEM it is longer than the extent, EROFS no quorum (first mapping of a
 *      segment), EREMOTE it is on another node, EEXIST something is mapped there, ESRCH no session,
 *      ETIMEDOUT it was frozen or the agent silent for too long (and is hung up on then), EBUSY
 *      the program changes its mappings there, EAGAIN it was unlinked just now, while it came,
 *      EINVAL, ENOENT, EIO.
 *   FORK{}      before fork(2), by the parent: RESULT with a token, good for one ADOPT within 30 s.
 *               It covers all that is attached now; segment: how many ranges that are (0: none,
 *               no ADOPT is needed). EDQUOT: its user has too many unused tokens.
 *   ADOPT{token}  in the child, after its own agent is READY: all those ranges are mapped by
 *               MAP/PROTECT (or GONE) when RESULT comes; segment: how many. EPERM; EIO: some could
 *               not be mapped, and text names the first. ETIMEDOUT (the agent was silent for too
 *               long), ESRCH (its session ended): of some it is not known whether they are mapped
 *               and registered, and they may be mapped later; no access must be given to any.
 *               The token {0, 0}, used if a daemon has died between FORK and ADOPT and with it the
 *               token: what the parent process has attached now, if it is of the same user.
 *   DETACH{segment, addr, len}   after a munmap or an mremap in place: the daemon looks into /proc
 *               again. Nothing breaks if it never comes.
 *   PUNCH{segment, offset, len}   madvise(MADV_REMOVE): punches the hole in the segment. EACCES:
 *               no writable attachment covers it. EPERM: the process has no session (yet, if the
 *               daemon has just started). EREMOTE, EOPNOTSUPP, EIO. ETIMEDOUT: not within
 *               SESSION_PUNCH_MS, and it is not done later.
 *   GROW{}      before the first mapping of this process grows (mremap(2)): what grows is registered with
 *               the process's userfaultfd as its neighbour is, so from the RESULT on all of a mapping is
 *               registered while pages are missing, for as long as the process lives. ENOMEM, ESRCH,
 *               ETIMEDOUT: it must not grow.
 *
 * Tools:
 *
 *   -> MIGRATE{segment, flags, mode, node, name, [rounds, [limit, batch]]}   segment: nodeid of
 *               RAMP_IOC_INFO; mode: enum transfer_mode, or 16: --reclaim; name empty: keeps it; flags:
 *               SESSION_WAIT, _WATCH, _TRACE, _FORCE, _UNSAID; rounds: of a pre-copy at most; limit: bytes a
 *               second that are read ahead of need, of all requests with the same (random) batch together.
 *               These are left out where there are none
 *   <- PROGRESS{done, all, text}   pages, and the state's name; with SESSION_WATCH
 *   <- STEP{done, all, node, text}   with SESSION_TRACE, just before the ANSWER, in order: what was
 *               done on which node, done ns after the first step; all: 0, or 1 + the page whose
 *               page fault it belongs to; node empty: a remark on the trace
 *   <- ANSWER{result, text}        then the daemon closes
 *   -> CANCEL{}                    Ctrl-C; hanging up is the same. The ANSWER still comes.
 *
 *   -> BATCH{flags, mode, node, ranges, [limit, batch]}   many moves at once, which keep their names: as
 *               MIGRATE, of the segments that the ranges' addr are (their len is 0); SESSION_WAIT, _FORCE;
 *               SESSION_MORE: more follow in another BATCH, whose other fields are ignored. It is no
 *               transaction. A daemon that does not know it hangs up
 *   <- VERDICT{result, segment, text}   once for each, in any order; as ANSWER
 *   <- ANSWER{result, text}        after the last VERDICT; ESHUTDOWN: the daemon ends, and segments
 *               without a VERDICT are to be asked for again; EUSERS: so are they, once VERDICTs have
 *               been read: they count, too, in what its user may have
 *   -> CANCEL{}                    of all that have no VERDICT yet
 *
 *   -> CONNECT{flags, len, segment, mode, node, name, step, [rounds]}   a move in steps, of a segment of this
 *               node: as MIGRATE (flags: SESSION_WAIT), but it waits after `step`, len ms at most; and
 *               without SESSION_WAIT the ANSWER comes as soon as the target has taken it. EREMOTE:
 *               it is not this node's; EALREADY: it is at its target; EUSERS: its user has too many
 *   <- HELD{len, step}            `step` is reached, and it waits there for len ms. READ_AHEAD and
 *               WRITES_CLOSED are for mode precopy (EOPNOTSUPP); a GO to a later step passes READ_AHEAD
 *               by, and WRITES_CLOSED where that was not asked for before
 *   -> GO{len, step}              it may continue to `step`; HOLD: it waits for len ms from now on, where
 *               it is CONNECTED, 10 minutes after that at most, and HELD comes once more
 *   <- ANSWER, -> CANCEL          as of MIGRATE. ETIMEDOUT: it has waited for too long
 *
 *   -> MEMBER{flags, addr, len, mode, node, name}   root only. mode: enum session_member; node:
 *               which node; FENCE: addr: the incarnation that is to be over, 0: the present one;
 *               ADD: name: its HOST:PORT, len: its capacity in bytes; flags: SESSION_FORCE.
 *               SET: node: the setting's name, len: its value, 0: the default
 *   <- ANSWER{result, text}
 *
 * Programs of the C API:
 *
 *   -> LISTEN{segment, flags, name}   segment: 0: any; name: a pattern of fnmatch(3), empty: any;
 *               flags: SESSION_ARM: arrivals that match come to this connection, and to no other
 *               one that is armed; SESSION_DEMAND: pages of what it hears of so, and its user
 *               owns, are not prefetched; SESSION_PHASES: it hears of ASKED to FAILED, too; SESSION_ASKS:
 *               a segment that its process has mapped leaves only after its QUIESCED
 *   <- EVENT{result, mode, segment, len, done, all, node, name, text}   mode: enum session_event.
 *               The first is LISTENING: result says whether it hears from now on; EBUSY: another
 *               one is armed for the same. EUSERS: its user has too many. node: the other node; len: the size in bytes; done:
 *               pages that are lost, of ROUND those that were stored into since; all: the epoch of the attempt, by which a repeated event is
 *               known (after a daemon's restart). COMING and HERE come to the armed one alone;
 *               COMING's node and text: the directory in which it is yet, and its name there.
 *               LISTENING: done: SESSION_KNOWS_ASKS, 0 of an older daemon. ASKED: done: ms that
 *               QUIESCED may take from ALL_READY on. FAILED: result and text
 *   -> QUIESCED{segment}           after ASKED, until LEFT or FAILED: the program has let go of it
 *
 *   -> PULL{offset, len, token}   token of RAMP_IOC_ATTACH; offset, len: bytes of the segment, len 0: to
 *               its end. They are fetched before others
 *   <- PROGRESS{done, all, text}   once, where it has to wait
 *   <- ANSWER{result, text}        when they are here. EIO: some are lost, the others are here; ENOSPC: the
 *               node has no room; EREMOTE, ENOENT; EPERM: the token is used, old or made up
 *   -> CANCEL                      as of MIGRATE
 *
 *   -> GIVE_UP{flags, token}   token of RAMP_IOC_ATTACH, of an open for writing; flags: SESSION_ZEROS. Pages
 *               that have not come are given up: they are LOST, or zeros
 *   <- PROGRESS{done, all, text}   once, where there are some
 *   <- ANSWER{result, text}        when that is noted beside the bytes. EACCES: it is not open for writing
 *
 * Errors travel as positive errno numbers in `result`, 0 being success. A message that is too long,
 * too short, of another version or out of order ends the connection without an answer (a wrong
 * version in the first message: WELCOME, RESULT or ANSWER with EPROTO). The daemon hangs up on a
 * client that does not read. If a user has too many connections or requests, it hangs up on the
 * newest, which comes again as after a daemon's death.
 *
 * The functions here allocate nothing, take no locks, and may be called between fork and exec.
 */
#ifndef RAMP_SESSION_H
#define RAMP_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "ids.h"

/* The directory of the sockets: root's, and readable by all users. */
#define SESSION_DIR "/run/rampfs"

#define SESSION_VERSION	   1
#define SESSION_PACKET_MAX 2048 /* bytes of the longest message */
#define SESSION_RANGES_MAX 64	/* of one DROP */
#define SESSION_PARTS_MAX  256	/* of one SWAP: each is protected in its own way */
#define SESSION_FDS_MAX	   2
#define SESSION_TEXT_MAX   400 /* bytes, with the NUL */
/* The name of the thread that writes what an agent says to its program's stderr. */
#define SESSION_SCRIBE	 "rampfs-scribe"
#define SESSION_PUNCH_MS 8000

enum session_type {
	SESSION_HELLO = 1,
	SESSION_WELCOME,
	SESSION_READY,
	SESSION_MAP,
	SESSION_PROTECT,
	SESSION_UNMAP,
	SESSION_DROP,
	SESSION_GONE,
	SESSION_BACK,
	SESSION_SWAP,
	SESSION_SAY,
	SESSION_DONE,
	SESSION_ATTACH,
	SESSION_FORK,
	SESSION_ADOPT,
	SESSION_DETACH,
	SESSION_PUNCH,
	SESSION_RESULT,
	SESSION_MIGRATE,
	SESSION_CANCEL,
	SESSION_PROGRESS,
	SESSION_ANSWER,
	SESSION_MEMBER,
	SESSION_STEP,
	SESSION_LISTEN,
	SESSION_EVENT,
	SESSION_RESERVE,
	SESSION_MOVE,
	SESSION_RETURN,
	SESSION_CONNECT,
	SESSION_GO,
	SESSION_HELD,
	SESSION_QUIESCED,
	SESSION_PULL,
	SESSION_GIVE_UP,
	SESSION_BATCH,
	SESSION_VERDICT,
	SESSION_GROW,
	SESSION_TYPES
};

#define SESSION_RECONNECT (1u << 0)  /* HELLO */
#define SESSION_REPLACE	  (1u << 1)  /* ATTACH */
#define SESSION_NOHUGE	  (1u << 2)  /* ATTACH, MAP, BACK */
#define SESSION_WAIT	  (1u << 3)  /* MIGRATE: until STABLE */
#define SESSION_WATCH	  (1u << 4)  /* MIGRATE: send PROGRESS */
#define SESSION_PRIVATE	  (1u << 5)  /* MAP, BACK: MAP_PRIVATE */
#define SESSION_FORCE	  (1u << 6)  /* MEMBER: the operator knows better; MIGRATE: unasked */
#define SESSION_TRACE	  (1u << 7)  /* MIGRATE: send STEPs */
#define SESSION_ARM	  (1u << 8)  /* LISTEN: for arrivals */
#define SESSION_MOVES	  (1u << 9)  /* HELLO */
#define SESSION_AWAY	  (1u << 10) /* HELLO */
#define SESSION_FORGET	  (1u << 11) /* RETURN */
#define SESSION_NOW	  (1u << 12) /* RETURN */
#define SESSION_AHEAD	  (1u << 13) /* ATTACH */
#define SESSION_PHASES	  (1u << 14) /* LISTEN: for each step of a departure */
#define SESSION_ASKS	  (1u << 15) /* LISTEN: is asked before a departure */
#define SESSION_ZEROS	  (1u << 16) /* GIVE_UP */
#define SESSION_MORE	  (1u << 17) /* BATCH: more segments follow */
/* MIGRATE, CONNECT: as the segment or the mount says, not as `mode` */
#define SESSION_UNSAID (1u << 18)
#define SESSION_DEMAND (1u << 19) /* LISTEN: pages of what arrives are not prefetched */
#define SESSION_SECOND (1u << 20) /* BACK: for the second userfaultfd */
#define SESSION_GROWS  (1u << 21) /* HELLO */
#define SESSION_GROWN  (1u << 22) /* HELLO */

#define SESSION_KNOWS_MOVE 1u /* READY's serial: bits */
#define SESSION_KNOWS_GROW 2u
#define SESSION_KNOWS_ASKS 1u /* LISTENING's done */

/* The operation that MEMBER asks for. */
enum session_member {
	SESSION_MEMBER_FENCE = 1,
	SESSION_MEMBER_REMOVE,
	SESSION_MEMBER_ADD,
	SESSION_MEMBER_PROMOTE,
	SESSION_MEMBER_SET,
};

/* Steps of a move (CONNECT, GO, HELD). */
enum session_step {
	SESSION_HOLD, /* GO: no further */
	SESSION_CONNECTED,
	SESSION_READ_AHEAD,    /* mode precopy: the target has nearly all; it may be closed */
	SESSION_WRITES_CLOSED, /* stores wait, and all that the target has to read again is known */
	SESSION_ALL_READ,      /* HELD: the same, and the target has read all of it */
	SESSION_PREPARED,
	SESSION_TAKEN,
};

/* What EVENT tells. */
enum session_event {
	SESSION_LISTENING = 1,
	SESSION_ARRIVED, /* the segment is served here from now on; its pages follow */
	SESSION_WHOLE,	 /* every page is here, except for those that are lost */
	SESSION_LEFT,	 /* the segment is on another node */
	SESSION_COMING,	 /* this node has room for it: the receiver may attach it ahead */
	SESSION_HERE, /* as ARRIVED, before directories show it; where it was attached ahead it is
			    in its place */
	/* Of a departure, with SESSION_PHASES alone. */
	SESSION_ASKED,	    /* it is to leave; with SESSION_ASKS alone, of what is mapped */
	SESSION_CONNECTING, /* the target makes room */
	SESSION_ALL_READY, /* all that takes long is done: programs that are asked are waited for */
	SESSION_GAVE,	   /* it is the target's */
	SESSION_SETTLED,   /* the target has every page: nothing here is needed any more */
	SESSION_FAILED,	   /* it stays: result, text */
	SESSION_CLOSED,	   /* stores wait, loads continue, the target reads what is left */
	SESSION_ROUND,	   /* of a pre-copy: the target has read a round */
};

struct session_range {
	uint64_t addr, len;
};

/* Any message. Only the fields of its type are sent; decoding leaves the others 0. */
struct session_msg {
	uint16_t type;	 /* enum session_type */
	uint32_t serial; /* the daemon's number of a command, repeated in DONE; HELLO: any */
	uint32_t result; /* errno, 0: success */
	uint32_t flags;	 /* SESSION_* */
	uint32_t tid;
	uint64_t segment, addr, len, offset, scratch;
	uint32_t prot; /* PROT_READ, PROT_WRITE, PROT_EXEC */
	uint64_t token[2];
	uint64_t limit, batch;
	uint64_t done, all; /* pages; RESULT: all is the extent's bytes */
	uint8_t mode;
	uint8_t step; /* enum session_step */
	uint8_t rounds;
	char node[RAMP_NODE_NAME_MAX + 1];
	char name[RAMP_NAME_MAX + 1];
	char text[SESSION_TEXT_MAX];
	uint32_t count;
	struct session_range ranges[SESSION_RANGES_MAX];
};

/* Returns the bytes written into buf (SESSION_PACKET_MAX is always enough); -EMSGSIZE; -EINVAL: no
   such type. */
int session_encode(const struct session_msg *msg, void *buf, size_t cap);
/* Returns 0; -EPROTO: another version (type is set if it is known); -EBADMSG: anything else. */
int session_decode(const void *buf, size_t len, struct session_msg *msg);

/* Returns a connected socket (close-on-exec, blocking), or a negative errno: -ENOENT, -ECONNREFUSED,
   -EACCES. Waits while the backlog is full. */
int session_connect(const char *path);
/* The same, but -EAGAIN if the backlog is full for patience_ms (at least 1); later sends on the
   socket wait at most as long, too (SO_SNDTIMEO). */
int session_connect_within(const char *path, uint32_t patience_ms);

/* Sends one message, with `nfds` descriptors (which stay the caller's). Flags of sendmsg(2);
   MSG_NOSIGNAL is added. Returns 0; -EAGAIN, -EPIPE, -ECONNRESET and so on. */
int session_send(int sock, const struct session_msg *msg, const int *fds, int nfds, int flags);
/*
 * Receives one message and at most SESSION_FDS_MAX descriptors (close-on-exec, the caller's from
 * here on; *nfds says how many). Returns 0; -EPIPE: hung up; -EAGAIN; -EBADMSG, -EPROTO as above
 * (then all descriptors have been closed). With fds == NULL there is no control buffer, and the
 * kernel drops descriptors that were sent. Flags of recvmsg(2).
 */
int session_recv(int sock, struct session_msg *msg, int *fds, int *nfds, int flags);

/* Sends the agent's one message to the broker. */
int session_send_uffds(int broker, const int *uffds, int count);

#endif
