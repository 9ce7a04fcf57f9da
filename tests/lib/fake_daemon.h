/*
 * A daemon for tests of the shim: one FUSE mount with one segment, and the session's protocol
 * (base/session.h) as the test plays it, with mistakes and deaths on demand. It keeps only the
 * protocol's promises: it has no cluster, no page states, no permissions.
 *
 * The segment is SEGMENT_BYTES long at EXTENT_ADDR, in a file of /dev/shm. Threads of its own
 * answer attaches, forks and holes; the test calls the rest. Every fake_ function ends the test
 * where something is not as it must be.
 */
#ifndef FAKE_DAEMON_H
#define FAKE_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SEGMENT_BYTES (UINT64_C(4) << 20)
#define EXTENT_ADDR   UINT64_C(0x200040000000)
#define EXTENT_BYTES  (UINT64_C(256) << 20)

struct fake;

/* Mounts at DIR/mnt (the segment is DIR/mnt/seg) and listens in SESSION_DIR, by DIR's name. */
struct fake *fake_start(const char *dir);
/* The same where this user has made the mount, as fusermount(1) does for a user. */
struct fake *fake_start_mounted_by(const char *dir, uid_t uid);
/* Takes the mount and the files away; some threads live until the process ends. */
void fake_stop(struct fake *fake);

/* Waits until the process's agent is known. Returns its session; the test fails after 5 s. */
void fake_wait_session(struct fake *fake, pid_t pid);
/* Registers the process's mappings of the segment, and has the agent drop them. */
void fake_revoke(struct fake *fake, pid_t pid);
/* The same in two steps: looks at its mappings; has the agent drop the mappings that were found. */
void fake_look(struct fake *fake, pid_t pid);
void fake_drop(struct fake *fake, pid_t pid);
/* Has the agent keep a place for the page tables of each of the process's mappings, FAKE_AWAY above
   it. Returns the first errno. */
int fake_reserve(struct fake *fake, pid_t pid);
#define FAKE_AWAY (UINT64_C(64) << 30)
/* Registers and moves all of them. */
void fake_move(struct fake *fake, pid_t pid);
/* The same, but dies and starts again while the first event of it is unread; the agent says that
   page tables are away. */
void fake_move_and_die(struct fake *fake, pid_t pid);
void fake_return(struct fake *fake, pid_t pid, uint32_t flags);
/* Waits until the process has page tables away, or none. */
void fake_await_away(struct fake *fake, pid_t pid, bool away);
/* From now on it is an older daemon, which does not know MOVE. */
void fake_grow_old(struct fake *fake);
/* Unregisters, wakes. */
void fake_restore(struct fake *fake, pid_t pid);
void fake_gone(struct fake *fake, pid_t pid, const char *line);
/* BACK and SWAP of all that was GONE. */
void fake_back(struct fake *fake, pid_t pid);
/* The same of the first mapping, which stays GONE where SWAP is refused. Returns SWAP's errno. */
int fake_try_back(struct fake *fake, pid_t pid);
/* The same, but dies and starts again while the SWAP waits for its remap event to be read. */
void fake_back_and_die(struct fake *fake, pid_t pid);
/* Events stay unread, or are read again: until then a SWAP is put in place and not over. */
void fake_read_events(struct fake *fake, bool reads);
/* Hangs up on every client and forgets every token and session, then accepts them again. */
void fake_die(struct fake *fake);
/* Hangs up on the next `n` ATTACH requests without an answer, after MAP. */
void fake_hang_up_attaches(struct fake *fake, int n);
/* Hangs up on the next `n` requests for holes before anything is punched; every other one is
   answered as by a daemon that does not know the process yet. */
void fake_hang_up_punches(struct fake *fake, int n);
/* Hangs up on the next `hang_up` GROWs, and answers those after it with this errno (0: as usual). */
void fake_answer_growths(struct fake *fake, int code, int hang_up);
/* Returns how many GROWs were answered; whether that process's agent has said that it was asked. */
int fake_growths(struct fake *fake);
bool fake_heard_of_growth(struct fake *fake, pid_t pid);
/* The next ATTACH finds that page of the segment mapped shortly before, without access, as by an
   attach that was given up. */
void fake_map_late(struct fake *fake, uint32_t page);
/* From now on HELLO is answered with this errno (0: as usual). */
void fake_refuse(struct fake *fake, int code, const char *text);
/* From now on FORK's tokens are forgotten before they are used, as by a daemon that died. */
void fake_forget_forks(struct fake *fake);
/* From now on FORK is answered that long after the look at the parent's mappings. */
void fake_delay_forks(struct fake *fake, uint32_t ms);
/* From now on ADOPT has the named ranges mapped, and is not answered. */
void fake_stall_in_adopt(struct fake *fake);
/* From now on ADOPT fails with this errno, and the named ranges have been mapped without access
   before or are mapped so shortly later. */
void fake_fail_in_adopt(struct fake *fake, int code, bool late);
/* From now on nothing is answered. */
void fake_fall_silent(struct fake *fake);
/* From now on no connection is accepted from the socket's queue, and the queue is full. */
void fake_fall_asleep(struct fake *fake);
/* From now on the listener is this user. */
void fake_listen_as(struct fake *fake, uid_t uid);
/* From now on the mount names another path of the same socket, in its own directory. */
void fake_move_socket(struct fake *fake);
/* From now on a read of the file takes that long. */
void fake_delay_reads(struct fake *fake, uint32_t ms);
/* Returns how often this process's agent has sent HELLO with RECONNECT. */
int fake_reconnects(struct fake *fake, pid_t pid);

#endif
