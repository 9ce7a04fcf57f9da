/*
 * The transfer of one segment, as rampfs/transfer does it, for spin.
 *
 * Names are the code's: move states (move.h), records (record.h), phases and commands (meta.h),
 * messages (proto.h), functions in brackets where a step is taken.
 *
 * Abstractions:
 *   messages    a set: each may come late, again and again, or never (a message that is never taken out of
 *               the set is only late, which for safety is the same)
 *   proposals   the same, and their answers are not seen: only the tables are
 *   tables      row_phase[0..E] is the history of the row; a node decides by any one entry of it,
 *               so its tables may be behind, or an old copy (R8); apply_* alone sees entry E
 *   daemon      killed at any time: its memory (move, conn, try) is lost. A slow daemon, or one
 *               that is down, takes no step
 *   machine     a reboot: record, bytes and programs are gone, the incarnation is another (inc);
 *               up_inc is the one that is committed, by NODE_UP or by a fence
 *   programs    access[n]: they may load and store; they outlive the daemon
 *   page tables tables[n]: where their entries are. An agent moves them away and back; to drop them
 *               instead is the same as HOME without access. back[n]: the agent has a RETURN that it
 *               has not carried out, from any life of the daemon
 *   bytes       whole[n]: no page is REMOTE; newest[n]: no other node has stored since. lost: the
 *               newest went down with its machine
 *   attempt     k is (source_id, ticket): a new number for each reservation. Its first
 *               half, source_id, is c: a new number for each CONNECT
 *
 *   rounds      if PRECOPY: T reads pages while it has only reserved. read[n]: what T has by its
 *               attempt; WHOLE: nothing was stored at S since. track[n]: what S knows of that, in the
 *               memory of its daemon. list_clean: attempts whose
 *               TRANSFER says that nothing was stored since T read last
 *   two steps   if CLOSE: stores are closed before the hand-over, loads go on. The tables of the programs
 *               go away, as at a freeze, and a protected mapping of the same bytes takes their place.
 *               closed[n]: it is there; programs load and do not store. final[n]: what S knows to have
 *               been stored into since T read last, when stores were closed; in the memory of its daemon
 *   given up    if GIVE_UP: a program gives the pages up that T has not pulled. reading[n]: a read of S's is
 *               under way, which may land at any time; given_up[n]: what the page states say of these pages;
 *               said[n]: what the program said they may become
 *   recovery    once, if RECOVERY: one machine is lost for good, the operator says so (a fence), and
 *               the other one's tables become the cluster's: the last entries of the history may be
 *               lost, but none that this node has seen (seen[n]); gone[n]: the node that is lost
 *
 * M_x=1 seeds a mistake; transfer.sh runs the rules as they are, which must pass, and each
 * mistake, which must be caught.
 */
#ifndef REBOOTS
#define REBOOTS 1
#endif
#ifndef CONNECTS
#define CONNECTS 2
#endif
#ifndef TICKETS
#define TICKETS 2
#endif
#ifndef EPOCHS
#define EPOCHS 7
#endif
#ifndef M_GIVEN_TIMES_OUT
#define M_GIVEN_TIMES_OUT 0 /* S proposes abort(k) because T is silent */
#endif
#ifndef M_TRANSFER_FIRST
#define M_TRANSFER_FIRST 0 /* TRANSFER leaves before the record is GIVEN */
#endif
#ifndef M_NO_TICKET
#define M_NO_TICKET 0 /* T takes any TRANSFER while it has some reservation */
#endif
#ifndef M_OLD_ROW
#define M_OLD_ROW 0 /* S serves again by a row that is not newer than e */
#endif
#ifndef M_FREE_AT_TAKEN
#define M_FREE_AT_TAKEN 0 /* S frees at PULLING */
#endif
#ifndef M_NO_REVOKE
#define M_NO_REVOKE 0 /* programs keep their mapping through the freeze */
#endif
#ifndef M_LOST_BY_SILENCE
#define M_LOST_BY_SILENCE 0 /* T calls pages LOST without proof */
#endif
#ifndef M_NO_SWEEP
#define M_NO_SWEEP 0 /* R4's abort of an attempt that is not under way is left out */
#endif
#ifndef M_NO_SOURCE_OVER
#define M_NO_SOURCE_OVER 0 /* R6's is left out */
#endif
#ifndef M_ANY_PREPARE
#define M_ANY_PREPARE 0 /* S freezes by any attempt's prepare */
#endif
#ifndef M_NO_REGISTRATION
#define M_NO_REGISTRATION 0 /* R1 is left out: any incarnation takes part, prepare compares nothing */
#endif
#ifndef M_NO_PROOF_IN_PULLING
#define M_NO_PROOF_IN_PULLING 0 /* proof of T's end reverts from MOVING alone */
#endif
#ifndef RECOVERY
#define RECOVERY 0
#endif
#ifndef M_NO_RECOVERED
#define M_NO_RECOVERED 0 /* a record TAKEN does not tell the tables of the prepare that was lost */
#endif
#ifndef M_OLDER_TABLES
#define M_OLDER_TABLES 0 /* entries are lost that the survivor has seen */
#endif
#ifndef M_WRONG_WORD
#define M_WRONG_WORD 0 /* the lost node lives, and serves */
#endif
#ifndef M_RETURN_AT_ONCE
#define M_RETURN_AT_ONCE 0 /* a new daemon has the tables moved back whatever the record says */
#endif
#ifndef M_NO_RETURN
#define M_NO_RETURN 0 /* tables stay away when access is given back */
#endif
#ifndef M_OVER_RETURN
#define M_OVER_RETURN 0 /* a stopped process is revoked from outside, before its agent's RETURN */
#endif
#ifndef M_UNREAD_EVENT
#define M_UNREAD_EVENT 0 /* only the life that asked for a move reads its event */
#endif
#ifndef M_FREE_UNDER_AWAY
#define M_FREE_UNDER_AWAY 0 /* S frees without the lease's proof */
#endif
#ifndef M_NO_FORGET
#define M_NO_FORGET 0 /* tables that are away stay there when the segment has gone */
#endif
#ifndef M_HELD_ABORT
#define M_HELD_ABORT 0 /* the abort of a held attempt is proposed before the attempt ends */
#endif
#ifndef M_HELD_RESUMED
#define M_HELD_RESUMED 0 /* a new daemon continues the held attempt that its tables show */
#endif

#ifndef GIVE_UP
#define GIVE_UP 0
#endif
#ifndef M_SETTLED_FIRST
#define M_SETTLED_FIRST 0 /* settled is proposed before the page states say that pages are given up */
#endif
#ifndef M_READ_LANDS
#define M_READ_LANDS 0 /* pages are given up while a read of them is under way */
#endif
#ifndef M_PULLED_AGAIN
#define M_PULLED_AGAIN 0 /* a later life of T pulls pages that were given up */
#endif
#ifndef M_ZEROS_UNASKED
#define M_ZEROS_UNASKED 0 /* they become zeros, whatever the program said */
#endif
#ifndef M_RESUMED
#define M_RESUMED 0 /* a later life gives up what an earlier one was asked to, and knows no flag */
#endif

#ifndef PRECOPY
#define PRECOPY 0
#endif
#ifndef M_NO_LIST
#define M_NO_LIST 0 /* T believes what it has read where TRANSFER says nothing of it */
#endif
#ifndef M_EARLY_LIST
#define M_EARLY_LIST 0 /* the last look for stores is made before access is revoked */
#endif
#ifndef M_TRACKED_LATE
#define M_TRACKED_LATE 0 /* T reads before stores are tracked */
#endif
#ifndef M_LATER_LIFE
#define M_LATER_LIFE 0 /* a later life of S takes stores that it did not see for none */
#endif

/* A prefill (user.ramp.prefill) is an attempt in S_PREPARING whose prepare is not proposed for long: rounds are read, the row
   and its epoch change, and either end may die, all of which is there. A request that joins it goes on with the
   same k; one that comes for elsewhere forgets it, as any time-out. What is new is that a later life of S knows from
   the row that T was kept near. It must not go on with what T has read under that k: */
#ifndef M_PREFILL_RESUMED
#define M_PREFILL_RESUMED 0 /* a later life of S takes its prefill up, and tracks stores from then on */
#endif
#ifndef CLOSE
#define CLOSE 0
#endif
#ifndef M_EARLY_FINAL
#define M_EARLY_FINAL 0 /* the last look for stores is made before they are closed */
#endif
#ifndef M_NO_FINAL
#define M_NO_FINAL 0 /* what T has read counts as all of it as soon as stores are closed */
#endif
#ifndef M_STAYS_CLOSED
#define M_STAYS_CLOSED 0 /* stores stay closed when the move is given up, or its daemon dies */
#endif
#ifndef M_OLD_FINAL
#define M_OLD_FINAL 0 /* what was known when stores were closed counts after they were opened again */
#endif
#ifndef M_READS_ON
#define M_READS_ON 0 /* the hand-over leaves the protected mapping in its place */
#endif

#define SEGMENT_STABLE	0
#define SEGMENT_MOVING	1
#define SEGMENT_PULLING 2

#define RECORD_NONE  0
#define RECORD_OWNED 1
#define RECORD_GIVEN 2
#define RECORD_TAKEN 3

#define MOVE_NEW     0 /* nothing in memory; what the record says is taken up again */
#define S_CONNECTING 1
#define S_CONNECTED  2 /* held for its client: T has room, the programs run */
#define S_PREPARING  3
#define S_CLOSING    4 /* programs are frozen until the protected mappings are in their place */
#define S_CLOSED     5 /* they load; T reads what is left */
#define S_PREPARED   6 /* held for its client, or S_ASKING: the row is MOVING, the programs run */
#define S_FREEZING   7
#define T_RESERVED   8
#define T_GIVING_UP  9 /* T, TAKEN: no read is posted any more, and those under way end */

#define UP_NOTHING 0
#define UP_LOST	   1 /* a load is SIGBUS */
#define UP_ZEROS   2

#define READ_NOTHING 0
#define READ_WHOLE   1
#define READ_OLD     2 /* pages of it were stored into since */

#define TRACK_NONE  0 /* not tracked: all pages count as stored into */
#define TRACK_CLEAN 1
#define TRACK_DIRTY 2

#define TABLES_HOME   0
#define TABLES_MOVING 1 /* out of their place; the agent stands in mremap until its event is read */
#define TABLES_AWAY   2

#define BIT(i)	  (1 << (i))
#define IN(set, i) (((set) >> (i)) & 1)
#define OTHER(n)  (1 - (n))

/* The row's history: entry e is the row at epoch e. */
byte E, row_phase[EPOCHS], row_node[EPOCHS], row_k[EPOCHS];

/* CONNECT c, and attempt k of it. */
byte n_conn, conn_src[CONNECTS], conn_epoch[CONNECTS], conn_inc[CONNECTS];
byte n_try, try_conn[TICKETS], try_inc[TICKETS];
#define SRC(k)	  conn_src[try_conn[k]]
#define DST(k)	  OTHER(SRC(k))
#define SRC_INC(k) conn_inc[try_conn[k]]
#define DST_INC(k) try_inc[k]
#define PREPARED(k) (conn_epoch[try_conn[k]] + 1) /* the prepare's epoch */

/* A node: the record beside the bytes, the move in memory, the access of its programs. */
byte record[2], record_k[2], move[2], move_c[2], move_k[2];
bool access[2], whole[2], newest[2], back[2];
byte tables[2], read[2], track[2], list_clean;
bool reading[2];
bool closed[2];
byte final[2];
byte given_up[2], said[2], wants[2]; /* wants: as said, in the daemon's memory */
byte inc[2], up_inc[2], seen[2];

/* Messages and proposals that were ever sent. */
byte msg_connect, msg_accept, msg_transfer, msg_refused;
byte cmd_prepare, cmd_taken, cmd_settled, cmd_abort_none, cmd_abort_refused, cmd_abort_over;

byte reboots;
bool quiet, lost, died, recovered, gone[2];

#define SERVES(n)   (record[n] == RECORD_OWNED || record[n] == RECORD_TAKEN)
#define REGISTERED(n) (M_NO_REGISTRATION || up_inc[n] == inc[n])
#define SRC_OVER(k) (up_inc[SRC(k)] != SRC_INC(k))
#define DST_OVER(k) (up_inc[DST(k)] != DST_INC(k))
/* Some tables show k in this phase; once all is quiet, tables are no more behind. */
#define SHOWS_MOVING(k)                                                        \
	(E >= PREPARED(k) && row_phase[PREPARED(k)] == SEGMENT_MOVING &&       \
	 row_k[PREPARED(k)] == (k) && (!quiet || E == PREPARED(k)))
#define SHOWS_PULLING(k)                                                       \
	(E > PREPARED(k) && row_phase[PREPARED(k) + 1] == SEGMENT_PULLING &&   \
	 row_k[PREPARED(k) + 1] == (k) && (!quiet || E == PREPARED(k) + 1))
#define SHOWS_PULLING_HERE(k)                                                  \
	(E > PREPARED(k) && row_phase[PREPARED(k) + 1] == SEGMENT_PULLING)
#define OWNER_HERE(n, e) (row_phase[e] == SEGMENT_STABLE && row_node[e] == (n))

inline invariant()
{
	assert(!(access[0] && access[1]));
	assert(!(SERVES(0) && SERVES(1)));
	assert(M_NO_REVOKE || ((!access[0] || SERVES(0)) && (!access[1] || SERVES(1))));
	/* A program that has access stores into the newest version. */
	assert(!(access[0] && whole[0]) || newest[0]);
	assert(!(access[1] && whole[1]) || newest[1]);
	assert(newest[0] || newest[1] || lost);
	/* R11: a row that is committed as T's is T's, as long as that incarnation lives. */
	assert(row_phase[E] != SEGMENT_PULLING || record[row_node[E]] == RECORD_TAKEN ||
	       inc[row_node[E]] != DST_INC(row_k[E]));
}

inline row_push(phase, node, k)
{
	E++;
	row_phase[E] = phase;
	row_node[E] = node;
	row_k[E] = k
}

inline forget(n)
{
	move[n] = MOVE_NEW;
	move_c[n] = 0;
	move_k[n] = 0;
	read[n] = READ_NOTHING;
	track[n] = TRACK_NONE;
	final[n] = (M_OLD_FINAL -> final[n] : TRACK_NONE);
	wants[n] = UP_NOTHING;
	reading[n] = false
}

inline drop_record(n)
{
	record[n] = RECORD_NONE;
	record_k[n] = 0;
	given_up[n] = UP_NOTHING;
	said[n] = UP_NOTHING;
	whole[n] = false;
	newest[n] = false
}

/* Node n acts on entry e of the history: it is in the log of n. */
#define SAW(n, e) seen[n] = ((RECOVERY && (e) > seen[n]) -> (e) : seen[n])

/* [recovery_found] of node n, the other one being lost */
inline recover(n)
{
	recovered = true;
	gone[OTHER(n)] = true;
	if
	:: newest[OTHER(n)] && !newest[n] -> lost = true
	:: else
	fi;
	if
	:: newest[OTHER(n)] -> died = true
	:: else
	fi;
	if
	:: M_WRONG_WORD
	:: else -> drop_record(OTHER(n)); access[OTHER(n)] = false; inc[OTHER(n)]++;
		tables[OTHER(n)] = TABLES_HOME; back[OTHER(n)] = false; closed[OTHER(n)] = false
	fi;
	forget(OTHER(n));
	up_inc[OTHER(n)] = inc[OTHER(n)] + M_WRONG_WORD;
	/* The daemon is started again, in another cluster: nothing of the old one arrives. */
	forget(n);
	msg_connect = 0; msg_accept = 0; msg_transfer = 0; msg_refused = 0;
	cmd_prepare = 0; cmd_taken = 0; cmd_settled = 0;
	cmd_abort_none = 0; cmd_abort_refused = 0; cmd_abort_over = 0
}

/* One of these for each attempt: the effects of its messages and proposals. */
proctype attempt(byte k)
{
end:	do
	/* ---- meta: META_PREPARE compares epoch, phase and both incarnations (R1, R3) */
	:: atomic { k < n_try && IN(cmd_prepare, k) && E + 3 < EPOCHS &&
		    OWNER_HERE(SRC(k), E) && E + 1 == PREPARED(k) &&
		    (M_NO_REGISTRATION || (!SRC_OVER(k) && !DST_OVER(k))) ->
		row_push(SEGMENT_MOVING, SRC(k), k); invariant() }
	:: atomic { k < n_try && IN(cmd_taken, k) && row_phase[E] == SEGMENT_MOVING &&
		    row_k[E] == k ->
		row_push(SEGMENT_PULLING, DST(k), k); invariant() }
	:: atomic { k < n_try && IN(cmd_settled, k) && row_phase[E] == SEGMENT_PULLING &&
		    row_k[E] == k ->
		row_push(SEGMENT_STABLE, DST(k), k); invariant() }
	:: atomic { k < n_try && (IN(cmd_abort_none, k) || IN(cmd_abort_refused, k)) &&
		    row_phase[E] == SEGMENT_MOVING && row_k[E] == k ->
		row_push(SEGMENT_STABLE, SRC(k), k); invariant() }
	/* PROOF_OVER of the target, from PULLING too (R5); checked against the node's row */
	:: atomic { k < n_try && IN(cmd_abort_over, k) && DST_OVER(k) &&
		    (row_phase[E] == SEGMENT_MOVING ||
		     (row_phase[E] == SEGMENT_PULLING && !M_NO_PROOF_IN_PULLING)) &&
		    row_k[E] == k ->
		row_push(SEGMENT_STABLE, SRC(k), k); invariant() }
	/* ---- messages that never arrive; only while things still happen, as they are repeated */
	:: atomic { k < n_try && !quiet && IN(cmd_prepare, k) ->
		cmd_prepare = cmd_prepare & ~BIT(k) }
	:: atomic { k < n_try && !quiet && IN(cmd_abort_none, k) ->
		cmd_abort_none = cmd_abort_none & ~BIT(k) }
	:: atomic { k < n_try && !quiet && IN(cmd_abort_refused, k) ->
		cmd_abort_refused = cmd_abort_refused & ~BIT(k) }
	:: atomic { k < n_try && !quiet && IN(msg_refused, k) ->
		msg_refused = msg_refused & ~BIT(k) }

	/* ---- source: ACCEPT [source_on_accept]: another ticket where T has lost the reservation */
	:: atomic { k < n_try && IN(msg_accept, k) && move[SRC(k)] == S_CONNECTING &&
		    move_c[SRC(k)] == try_conn[k] && inc[SRC(k)] == SRC_INC(k) ->
		move[SRC(k)] = S_CONNECTED; move_k[SRC(k)] = k }
	/* REFUSED of the incarnation that was asked [source_on_refused] */
	:: atomic { k < n_try && IN(msg_refused, k) && record[SRC(k)] == RECORD_GIVEN &&
		    record_k[SRC(k)] == k && !IN(cmd_abort_refused, k) ->
		cmd_abort_refused = cmd_abort_refused | BIT(k) }
	/* R4: OWNED, the row MOVING(k), k not under way [sweep] */
	:: atomic { !M_NO_SWEEP && k < n_try && record[SRC(k)] == RECORD_OWNED &&
		    inc[SRC(k)] == SRC_INC(k) && REGISTERED(SRC(k)) && SHOWS_MOVING(k) &&
		    !(move[SRC(k)] >= S_PREPARING && move[SRC(k)] <= S_FREEZING &&
		      move_k[SRC(k)] == k) && !IN(cmd_abort_none, k) ->
		cmd_abort_none = cmd_abort_none | BIT(k) }

	/* ---- target: TRANSFER, reserved under this ticket [target_take] */
	:: atomic { k < n_try && IN(msg_transfer, k) && REGISTERED(DST(k)) &&
		    move[DST(k)] == T_RESERVED && (M_NO_TICKET || move_k[DST(k)] == k) ->
		if
		:: PRECOPY && read[DST(k)] && (IN(list_clean, k) || M_NO_LIST) ->
			/* Pages that were not read again are as S has them. */
			whole[DST(k)] = true;
			newest[DST(k)] = (read[DST(k)] == READ_WHOLE);
			lost = lost && !newest[DST(k)]
		:: else /* pages that S names, or all, are REMOTE */
		fi;
		forget(DST(k)); record[DST(k)] = RECORD_TAKEN; record_k[DST(k)] = k; invariant() }
	/* A round: S tracks stores, then T reads what was stored into since it read last
	   [round_begin, rounds_read]. S is OWNED, and knows k */
	:: atomic { PRECOPY && k < n_try && move[DST(k)] == T_RESERVED && move_k[DST(k)] == k &&
		    record[SRC(k)] == RECORD_OWNED &&
		    (move[SRC(k)] == S_PREPARING || move[SRC(k)] == S_CLOSED) &&
		    move_k[SRC(k)] == k && inc[SRC(k)] == SRC_INC(k) && read[DST(k)] != READ_WHOLE ->
		track[SRC(k)] = (M_TRACKED_LATE -> track[SRC(k)] : TRACK_CLEAN);
		final[SRC(k)] = (move[SRC(k)] == S_CLOSED -> TRACK_CLEAN : TRACK_NONE);
		read[DST(k)] = READ_WHOLE; invariant() }
	:: atomic { PRECOPY && M_TRACKED_LATE && k < n_try && read[DST(k)] &&
		    move[SRC(k)] == S_PREPARING && move_k[SRC(k)] == k &&
		    track[SRC(k)] == TRACK_NONE -> track[SRC(k)] = TRACK_CLEAN }
	/* ... and not: never, from here on [target_answer] */
	:: atomic { k < n_try && IN(msg_transfer, k) && REGISTERED(DST(k)) &&
		    inc[DST(k)] == DST_INC(k) &&
		    !(move[DST(k)] == T_RESERVED && (M_NO_TICKET || move_k[DST(k)] == k)) &&
		    !(SERVES(DST(k)) && record_k[DST(k)] == k) && !IN(msg_refused, k) ->
		msg_refused = msg_refused | BIT(k) }
	/* R6: the source is over and k is not taken: dropped, aborted [target_reserved_look, sweep] */
	:: atomic { !M_NO_SOURCE_OVER && k < n_try && SHOWS_MOVING(k) && SRC_OVER(k) &&
		    inc[DST(k)] == DST_INC(k) && REGISTERED(DST(k)) &&
		    !(record[DST(k)] == RECORD_TAKEN && record_k[DST(k)] == k) &&
		    !IN(cmd_abort_refused, k) ->
		if
		:: move[DST(k)] == T_RESERVED && move_k[DST(k)] == k -> forget(DST(k))
		:: else
		fi;
		cmd_abort_refused = cmd_abort_refused | BIT(k) }
	/* R5, R6: T is over; S in GIVEN proposes it, or any node where S is over too */
	:: atomic { k < n_try && (SHOWS_MOVING(k) || SHOWS_PULLING(k)) && DST_OVER(k) &&
		    ((record[SRC(k)] == RECORD_GIVEN && record_k[SRC(k)] == k) || SRC_OVER(k)) &&
		    !IN(cmd_abort_over, k) ->
		cmd_abort_over = cmd_abort_over | BIT(k) }
	od
}

#define K record_k[n]
/* The move keeps stores closed. A daemon that has begun again holds none. */
#define HOLDS_CLOSED(n)                                                        \
	(closed[n] && (move[n] == S_CLOSED || move[n] == S_PREPARED || move[n] == S_FREEZING))

proctype node(byte n)
{
	byte v, i;

end:	do
	:: atomic { RECOVERY && !recovered && !quiet && !gone[n] ->
		select (v : 0 .. E);
		if
		:: v >= seen[n] || M_OLDER_TABLES ->
			recover(n);
			do
			:: E > v -> row_phase[E] = 0; row_node[E] = 0; row_k[E] = 0; E--
			:: else -> break
			od
		:: else
		fi;
		v = 0; invariant() }
	/* [fsm_recovered] */
	:: atomic { !M_NO_RECOVERED && recovered && record[n] == RECORD_TAKEN &&
		    E < PREPARED(K) ->
		do
		:: E < PREPARED(K) -> row_push(SEGMENT_STABLE, SRC(K), 0)
		:: else -> break
		od;
		row_push(SEGMENT_PULLING, n, K); invariant() }
	/* ---- programs */
	:: atomic { access[n] && !closed[n] && whole[n] && newest[OTHER(n)] ->
		assert(newest[n]); newest[OTHER(n)] = false; invariant() }
	:: atomic { PRECOPY && access[n] && !closed[n] && whole[n] &&
		    (read[OTHER(n)] == READ_WHOLE || track[n] == TRACK_CLEAN) ->
		read[OTHER(n)] = (read[OTHER(n)] -> READ_OLD : READ_NOTHING);
		track[n] = (track[n] -> TRACK_DIRTY : TRACK_NONE) }
	/* [thaw, client_catch_up]: unregistered, so that entries come by themselves; RETURN is sent,
	   and is not waited for */
	:: atomic { (SERVES(n) || (M_RETURN_AT_ONCE && tables[n] == TABLES_AWAY && move[n] == MOVE_NEW)) &&
		    !back[n] && (!access[n] || (tables[n] == TABLES_AWAY && !M_NO_RETURN)) &&
		    move[n] != S_FREEZING && move[n] != S_CLOSING && !HOLDS_CLOSED(n) &&
		    !(M_STAYS_CLOSED && closed[n]) && tables[n] != TABLES_MOVING ->
		if
		:: tables[n] == TABLES_AWAY && !M_NO_RETURN -> back[n] = true
		:: else
		fi;
		if
		:: SERVES(n) -> access[n] = true
		:: else
		fi;
		invariant() }
	/* of a program whose tables were dropped, not moved: its protection is lifted [uffd_disarm] */
	:: atomic { closed[n] && SERVES(n) && tables[n] == TABLES_HOME && !HOLDS_CLOSED(n) &&
		    !M_STAYS_CLOSED -> closed[n] = false; access[n] = true; invariant() }
	/* the agent carries out a RETURN [move_away_return] */
	:: atomic { back[n] && tables[n] == TABLES_AWAY ->
		back[n] = false; tables[n] = TABLES_HOME; access[n] = true; closed[n] = false;
		invariant() }
	/* the event is read: by this life, by a later one, or by the agent's own guard */
	:: atomic { tables[n] == TABLES_MOVING &&
		    (!M_UNREAD_EVENT || move[n] == S_FREEZING || move[n] == S_CLOSING) ->
		tables[n] = TABLES_AWAY }

	/* ---- source */
	/* [source_start] with a row that may be old */
	:: atomic { !quiet && !gone[n] && record[n] == RECORD_OWNED && move[n] == MOVE_NEW &&
		    REGISTERED(n) && n_conn < CONNECTS && n_try < TICKETS && E + 3 < EPOCHS ->
		select (v : 0 .. E);
		if
		:: OWNER_HERE(n, v) ->
			SAW(n, v);
			conn_src[n_conn] = n; conn_epoch[n_conn] = v; conn_inc[n_conn] = inc[n];
			move[n] = S_CONNECTING; move_c[n] = n_conn;
			msg_connect = msg_connect | BIT(n_conn); n_conn++
		:: else
		fi;
		v = 0 }
	/* CONNECT is repeated while it is held [hold_tick] */
	:: atomic { move[n] == S_CONNECTED -> move[n] = S_CONNECTING; move_k[n] = 0 }
	/* the client, or a move that is not held, continues [source_prepare] */
	:: atomic { move[n] == S_CONNECTED ->
		move[n] = S_PREPARING; cmd_prepare = cmd_prepare | BIT(move_k[n]) }
	/* [source_close]: frozen as for the hand-over */
	:: atomic { CLOSE && move[n] == S_PREPARING && record[n] == RECORD_OWNED && track[n] &&
		    !closed[n] ->
		move[n] = S_CLOSING; final[n] = (M_EARLY_FINAL -> track[n] : TRACK_NONE) }
	:: atomic { move[n] == S_CLOSING && access[n] && !closed[n] && !back[n] &&
		    tables[n] == TABLES_HOME ->
		access[n] = false;
		if
		:: tables[n] = TABLES_MOVING
		:: skip /* dropped */
		fi }
	/* no thread stores any more: the last look, then the protected mappings, which are read */
	:: atomic { move[n] == S_CLOSING && !access[n] && tables[n] != TABLES_MOVING ->
		if
		:: !M_EARLY_FINAL -> final[n] = (M_NO_FINAL -> TRACK_CLEAN : track[n])
		:: else
		fi;
		closed[n] = true; access[n] = true; move[n] = S_CLOSED; invariant() }
	/* R3: k itself is seen committed, by the life that proposed it [prepared] */
	:: atomic { (move[n] == S_PREPARING || move[n] == S_CLOSED) && record[n] == RECORD_OWNED &&
		    E >= PREPARED(move_k[n]) &&
		    row_phase[PREPARED(move_k[n])] == SEGMENT_MOVING &&
		    (M_ANY_PREPARE || row_k[PREPARED(move_k[n])] == move_k[n]) ->
		move[n] = S_PREPARED; SAW(n, PREPARED(move_k[n])) }
	/* the client, or programs that were asked, let it continue [freeze] */
	:: atomic { move[n] == S_PREPARED -> move[n] = S_FREEZING }
	:: atomic { M_HELD_ABORT && move[n] == S_PREPARED && !IN(cmd_abort_none, move_k[n]) ->
		cmd_abort_none = cmd_abort_none | BIT(move_k[n]) }
	:: atomic { M_HELD_RESUMED && move[n] == MOVE_NEW && record[n] == RECORD_OWNED && n_try > 0 &&
		    SRC(n_try - 1) == n && inc[n] == SRC_INC(n_try - 1) && SHOWS_MOVING(n_try - 1) ->
		move[n] = S_PREPARED; move_c[n] = try_conn[n_try - 1]; move_k[n] = n_try - 1 }
	/* [freeze_and_give]: the revoke, then the record */
	/* moved away, by an agent that has carried out all that it was asked before */
	:: atomic { move[n] == S_FREEZING && access[n] && !closed[n] && !back[n] && !M_NO_REVOKE &&
		    tables[n] == TABLES_HOME ->
		access[n] = false; tables[n] = TABLES_MOVING }
	/* finish_read: mappings without entries take the place of the protected ones */
	:: atomic { move[n] == S_FREEZING && access[n] && closed[n] && !back[n] && !M_READS_ON ->
		access[n] = false; closed[n] = false }
	/* dropped: by such an agent, or from outside in a stopped process [inject_drop], which is
	   refused while a RETURN is not answered */
	:: atomic { move[n] == S_FREEZING && access[n] && !closed[n] && !M_NO_REVOKE &&
		    (!back[n] || M_OVER_RETURN) -> access[n] = false }
	:: atomic { move[n] == S_FREEZING && record[n] == RECORD_OWNED &&
		    (!access[n] || M_NO_REVOKE || (M_READS_ON && closed[n])) && tables[n] != TABLES_MOVING &&
		    (!M_TRANSFER_FIRST || IN(msg_transfer, move_k[n])) ->
		record[n] = RECORD_GIVEN; record_k[n] = move_k[n];
		if
		:: PRECOPY && !M_EARLY_LIST &&
		   (final[n] -> final[n] : track[n]) == TRACK_CLEAN -> list_clean = list_clean | BIT(K)
		:: else
		fi;
		forget(n); invariant() }
	:: atomic { M_EARLY_LIST && move[n] == S_FREEZING && track[n] == TRACK_CLEAN ->
		list_clean = list_clean | BIT(move_k[n]) }
	/* A later life of S knows nothing of stores: its TRANSFER names no pages. */
	:: atomic { M_LATER_LIFE && record[n] == RECORD_GIVEN && move[n] == MOVE_NEW ->
		list_clean = list_clean | BIT(K) }
	:: atomic { M_PREFILL_RESUMED && move[n] == MOVE_NEW && record[n] == RECORD_OWNED && n_try > 0 &&
		    SRC(n_try - 1) == n && inc[n] == SRC_INC(n_try - 1) && E + 1 == PREPARED(n_try - 1) &&
		    move[OTHER(n)] == T_RESERVED && move_k[OTHER(n)] == n_try - 1 ->
		move[n] = S_PREPARING; move_c[n] = try_conn[n_try - 1]; move_k[n] = n_try - 1;
		track[n] = TRACK_CLEAN; cmd_prepare = cmd_prepare | BIT(n_try - 1) }
	:: atomic { M_TRANSFER_FIRST && move[n] == S_FREEZING && !access[n] &&
		    !IN(msg_transfer, move_k[n]) -> msg_transfer = msg_transfer | BIT(move_k[n]) }
	/* R5: from GIVEN on, TRANSFER is sent and sent again, by every life [given_send] */
	:: atomic { record[n] == RECORD_GIVEN && !IN(msg_transfer, K) && !IN(msg_refused, K) ->
		msg_transfer = msg_transfer | BIT(K) }
	/* R4: a time-out, a refusal, Ctrl-C, a client that has exited, a program that does not let go, no
	   quorum [source_fail_now, source_give_up] */
	:: atomic { move[n] >= S_CONNECTING && move[n] <= S_FREEZING -> forget(n) }
	:: atomic { M_GIVEN_TIMES_OUT && record[n] == RECORD_GIVEN && !IN(cmd_abort_none, K) ->
		cmd_abort_none = cmd_abort_none | BIT(K) }
	/* R5: the tables show it ours, above e [revert_work] */
	:: atomic { record[n] == RECORD_GIVEN &&
		    ((E > PREPARED(K) && OWNER_HERE(n, PREPARED(K) + 1)) ||
		     (E > PREPARED(K) + 1 && OWNER_HERE(n, PREPARED(K) + 2)) ||
		     (M_OLD_ROW && OWNER_HERE(n, PREPARED(K) - 1))) ->
		if
		:: lost -> newest[n] = true; lost = false /* rolled back */
		:: else
		fi;
		assert(newest[n]);
		SAW(n, PREPARED(K) + (OWNER_HERE(n, PREPARED(K) + 1) -> 1 : 2));
		record[n] = RECORD_OWNED; record_k[n] = 0; whole[n] = true; forget(n);
		invariant() }
	/* [programs_gone]: the segment has left; what is away is unmapped */
	:: atomic { !M_NO_FORGET && record[n] == RECORD_GIVEN && tables[n] == TABLES_AWAY &&
		    SHOWS_PULLING_HERE(K) -> tables[n] = TABLES_HOME }
	/* R7: newer, and neither owner nor source [free_work]; the lease proves that no process maps
	   it */
	:: atomic { record[n] == RECORD_GIVEN && E > PREPARED(K) &&
		    (tables[n] == TABLES_HOME || M_FREE_UNDER_AWAY) &&
		    row_phase[PREPARED(K) + 1] == SEGMENT_PULLING &&
		    (M_FREE_AT_TAKEN || (E > PREPARED(K) + 1 &&
		     OWNER_HERE(OTHER(n), PREPARED(K) + 2))) ->
		assert(tables[n] == TABLES_HOME);
		/* Never the only copy, while the owner's machine lives. */
		assert(newest[OTHER(n)] || lost || died);
		if
		:: !newest[OTHER(n)] -> lost = true
		:: else
		fi;
		SAW(n, PREPARED(K) + 2);
		drop_record(n); invariant() }

	/* ---- target */
	/* R2: no record; a new ticket for each; a newer attempt takes the older one's place
	   [target_on_connect, reserved] */
	:: atomic { !quiet && !gone[n] && n_try < TICKETS && REGISTERED(n) && record[n] == RECORD_NONE ->
		select (i : 0 .. CONNECTS - 1);
		if
		:: i < n_conn && IN(msg_connect, i) && conn_src[i] == OTHER(n) &&
		   (move[n] == MOVE_NEW ||
		    (move[n] == T_RESERVED && try_conn[move_k[n]] != i &&
		     conn_epoch[try_conn[move_k[n]]] <= conn_epoch[i])) ->
			try_conn[n_try] = i; try_inc[n_try] = inc[n];
			move[n] = T_RESERVED; move_k[n] = n_try;
			msg_accept = msg_accept | BIT(n_try); n_try++
		:: else
		fi;
		i = 0; invariant() }
	/* R2: at any time [target_drop] */
	:: atomic { move[n] == T_RESERVED -> forget(n) }
	/* [pull_begin]: S, GIVEN, serves under k's key, in k's incarnation */
	:: atomic { !GIVE_UP && record[n] == RECORD_TAKEN && !whole[n] &&
		    record[SRC(K)] == RECORD_GIVEN && record_k[SRC(K)] == K &&
		    inc[SRC(K)] == SRC_INC(K) ->
		newest[n] = newest[OTHER(n)]; whole[n] = true; invariant() }
	/* The same in two steps: the read is posted [link_post], and lands */
	:: atomic { GIVE_UP && record[n] == RECORD_TAKEN && !whole[n] && move[n] == MOVE_NEW &&
		    record[SRC(K)] == RECORD_GIVEN && record_k[SRC(K)] == K &&
		    inc[SRC(K)] == SRC_INC(K) && !reading[n] -> reading[n] = true }
	:: atomic { reading[n] && record[n] == RECORD_TAKEN && record[SRC(K)] == RECORD_GIVEN &&
		    record_k[SRC(K)] == K && inc[SRC(K)] == SRC_INC(K) ->
		reading[n] = false; newest[n] = newest[OTHER(n)]; whole[n] = true; invariant() }
	/* ... or never, since its connection is closed: the only way to be sure [links_drop] */
	:: atomic { reading[n] && record[n] == RECORD_TAKEN &&
		    (move[n] == T_GIVING_UP || SRC_OVER(K)) -> reading[n] = false }
	/* A program gives up what is missing, and says what it may become [pull_give_up] */
	:: atomic { GIVE_UP && !quiet && record[n] == RECORD_TAKEN && !whole[n] &&
		    move[n] == MOVE_NEW ->
		move[n] = T_GIVING_UP;
		if
		:: said[n] = UP_LOST
		:: said[n] = UP_ZEROS
		fi;
		wants[n] = said[n] }
	:: atomic { M_RESUMED && record[n] == RECORD_TAKEN && !whole[n] && move[n] == MOVE_NEW &&
		    said[n] ->
		move[n] = T_GIVING_UP; wants[n] = UP_ZEROS }
	/* Nothing lands any more: the page states, beside the bytes, say LOST, or LOCAL of a hole. From here
	   on it is as if the source were over */
	:: atomic { GIVE_UP && move[n] == T_GIVING_UP && record[n] == RECORD_TAKEN && !whole[n] &&
		    (!reading[n] || M_READ_LANDS) ->
		given_up[n] = (M_ZEROS_UNASKED -> UP_ZEROS : wants[n]);
		assert(given_up[n] == UP_LOST || said[n] == UP_ZEROS);
		lost = false; newest[OTHER(n)] = false; newest[n] = true; whole[n] = true;
		move[n] = MOVE_NEW; wants[n] = UP_NOTHING; invariant() }
	/* Its last read has brought the last page before that. */
	:: atomic { GIVE_UP && move[n] == T_GIVING_UP && (whole[n] || record[n] != RECORD_TAKEN) ->
		move[n] = MOVE_NEW; wants[n] = UP_NOTHING }
	:: atomic { M_SETTLED_FIRST && move[n] == T_GIVING_UP && record[n] == RECORD_TAKEN &&
		    SHOWS_PULLING(K) && !IN(cmd_settled, K) -> cmd_settled = cmd_settled | BIT(K) }
	:: atomic { M_PULLED_AGAIN && given_up[n] && record[n] == RECORD_TAKEN &&
		    move[n] == MOVE_NEW ->
		given_up[n] = UP_NOTHING; whole[n] = false }
	/* R12: LOST only from another incarnation or a fence [pull_source_over] */
	:: atomic { record[n] == RECORD_TAKEN && !whole[n] && !reading[n] &&
		    (SRC_OVER(K) || M_LOST_BY_SILENCE) ->
		assert(inc[SRC(K)] != SRC_INC(K));
		lost = false; newest[OTHER(n)] = false; newest[n] = true; whole[n] = true;
		invariant() }
	:: atomic { record[n] == RECORD_TAKEN && !IN(cmd_taken, K) ->
		cmd_taken = cmd_taken | BIT(K) }
	:: atomic { record[n] == RECORD_TAKEN && whole[n] && SHOWS_PULLING(K) &&
		    !IN(cmd_settled, K) -> cmd_settled = cmd_settled | BIT(K) }
	/* [settle_work] */
	:: atomic { record[n] == RECORD_TAKEN && E > PREPARED(K) + 1 &&
		    OWNER_HERE(n, PREPARED(K) + 2) ->
		SAW(n, PREPARED(K) + 2); record[n] = RECORD_OWNED; invariant() }

	/* ---- kills and reboots */
	:: atomic { !quiet && (move[n] != MOVE_NEW || reading[n]) -> forget(n) } /* daemon killed */
	:: atomic { !quiet && !gone[n] && reboots < REBOOTS ->
		reboots++;
		if
		:: newest[n] && !newest[OTHER(n)] -> lost = true
		:: else
		fi;
		if
		:: newest[n] -> died = true
		:: else
		fi;
		drop_record(n); access[n] = false; tables[n] = TABLES_HOME; back[n] = false;
		closed[n] = false; forget(n); inc[n]++; invariant() }
	:: atomic { up_inc[n] < inc[n] -> up_inc[n]++ } /* NODE_UP, or the operator's fence */
	od
}

/* When machines and daemons are left alone, and no move is asked for: everything is decided, and page
   tables are in their place. */
#define DECIDED                                                                \
	(row_phase[E] == SEGMENT_STABLE && record[OTHER(row_node[E])] == RECORD_NONE && \
	 (record[row_node[E]] == RECORD_OWNED ||                               \
	  (record[row_node[E]] == RECORD_NONE && lost)) &&                     \
	 tables[0] == TABLES_HOME && tables[1] == TABLES_HOME && !back[0] && !back[1] && \
	 !closed[0] && !closed[1])

active proctype rest()
{
	quiet = true;
end:	do
	:: timeout -> assert(DECIDED); break
	od
}

init
{
	byte k;

	atomic {
		record[0] = RECORD_OWNED; access[0] = true; whole[0] = true; newest[0] = true;
		run node(0); run node(1);
		k = 0;
		do
		:: k < TICKETS -> run attempt(k); k++
		:: else -> break
		od;
		k = 0
	}
}
