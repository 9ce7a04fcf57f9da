/*
 * Addresses given back: one segment, its extent, and the mappings at two nodes, for spin.
 *
 * Names are the code's; functions in brackets where a step is taken.
 *
 * Abstractions:
 *   extents     numbered: 1, 2, ...; 0: none. Whatever maps the segment, or the empty file in its place
 *               (gone), does so at one of them, and at no time at another than the row's: it could come
 *               back with the bytes of another place, or lie where another segment is
 *   tables      the history of the row; tab[n]: how far node n has applied it, which never goes back
 *   transfer    one step, with the commit of its prepare: transfer.pml has the rest. The target serves
 *               before its tables show it (R11)
 *   proposal    cmd: of UNEXTENT, in some leader's hands until it is applied. A later command of the same
 *               node makes it stale (command.h, the floor), so an applied EXTENT ends it
 *   daemon      killed at any time: its memory is lost, with the tokens of forks. mark[n] lies beside the
 *               bytes
 *   fork        token[n]: a child that is to have the mapping which its parent had then
 *
 * M_x=1 seeds a mistake; transfer.sh runs the rules as they are, which must pass, and each
 * mistake, which must be caught.
 */
#ifndef M_NOT_ASKED
#define M_NOT_ASKED 0 /* UNEXTENT is proposed before the other node has answered */
#endif
#ifndef M_ATTACH_AFTER
#define M_ATTACH_AFTER 0 /* attaches are not held at the owner */
#endif
#ifndef M_LATE_ATTACH
#define M_LATE_ATTACH 0 /* an attach that read its address before the hold maps it after that */
#endif
#ifndef M_READ_HELD
#define M_READ_HELD 0 /* an attach that reads its address during the hold maps it after that */
#endif
#ifndef M_ADOPT_AFTER
#define M_ADOPT_AFTER 0 /* a node that has answered lets a fork's child have the empty file */
#endif
#ifndef M_NO_MARK
#define M_NO_MARK 0 /* the next daemon does not know that UNEXTENT may be under way */
#endif
#ifndef M_ANY_EPOCH
#define M_ANY_EPOCH 0 /* UNEXTENT does not compare the row's epoch */
#endif
#ifndef M_BEHIND
#define M_BEHIND 0 /* an attach at the target goes by tables that are older than its record */
#endif

#ifndef LOG
#define LOG 6
#endif
#ifndef EPOCHS
#define EPOCHS 4
#endif
#define EXTENTS	 3
#define KILLS	 1
#define OTHER(n) (1 - (n))

/* The log: the row after each entry. */
byte H, row_epoch[LOG], row_ext[LOG], row_owner[LOG];
byte n_ext = 1;

/* A node: its tables, its record, its programs' mappings by extent, its forks. */
byte tab[2], record_epoch[2], live[2], gone[2], token[2];
bool serves[2];
byte mark[2]; /* beside the bytes: the epoch of an UNEXTENT that may have been proposed; 0: none */

/* In a daemon's memory. */
bool held[2];
byte want[2];	 /* an attach has read this address, with nothing held */
byte promise[2]; /* answered for the row at this epoch; 0: never */
bool said[2];	 /* at the owner: the other node has answered */

byte cmd, cmd_node;
byte kills;

#define MARKED(n) (mark[n] && mark[n] >= row_epoch[tab[n]] && !M_NO_MARK)
#define BEHIND(n) (row_epoch[tab[n]] < record_epoch[n] && !M_BEHIND)

inline invariant()
{
	assert(!live[0] || live[0] == row_ext[H]);
	assert(!live[1] || live[1] == row_ext[H]);
	assert(!gone[0] || gone[0] == row_ext[H]);
	assert(!gone[1] || gone[1] == row_ext[H]);
}

inline row_push(epoch, ext, owner)
{
	row_epoch[H + 1] = epoch;
	row_ext[H + 1] = ext;
	row_owner[H + 1] = owner;
	H++
}

inline let_go(n)
{
	held[n] = false;
	said[n] = false
}

proctype node(byte n)
{
end:	do
	:: atomic { tab[n] < H -> tab[n]++ }

	/* ---- attach [find_extent, attach_enter] */
	:: atomic { serves[n] && !want[n] && !BEHIND(n) && row_ext[tab[n]] && !MARKED(n) &&
		    (!held[n] || M_ATTACH_AFTER || M_READ_HELD) -> want[n] = row_ext[tab[n]] }
	/* EXTENT, which answers with the extent that the row has by then; applied here */
	:: atomic { serves[n] && !want[n] && (!held[n] || M_ATTACH_AFTER || M_READ_HELD) &&
		    (!row_ext[tab[n]] || MARKED(n)) &&
		    H + 1 < LOG && n_ext < EXTENTS && row_owner[H] == n ->
		if
		:: row_ext[H] -> row_push(row_epoch[H], row_ext[H], row_owner[H])
		:: else -> n_ext++; row_push(row_epoch[H], n_ext, row_owner[H])
		fi;
		if
		:: cmd_node == n -> cmd = 0
		:: else
		fi;
		if
		:: !held[n] -> mark[n] = 0
		:: else
		fi;
		tab[n] = H; want[n] = row_ext[H]; invariant() }
	:: atomic { want[n] && serves[n] && (!held[n] || M_ATTACH_AFTER || M_LATE_ATTACH) && !live[n] ->
		live[n] = want[n]; want[n] = 0; invariant() }
	:: atomic { want[n] -> want[n] = 0 } /* gives up */
	/* the program unmaps it */
	:: atomic { live[n] -> live[n] = 0 }
	:: atomic { gone[n] -> gone[n] = 0 }

	/* ---- fork [fork_begin, adopt_gone] */
	:: atomic { gone[n] && !token[n] -> token[n] = gone[n] }
	:: atomic { token[n] && !serves[n] && !gone[n] && row_ext[tab[n]] == token[n] &&
		    (M_ADOPT_AFTER || !promise[n] || row_epoch[tab[n]] > promise[n]) ->
		gone[n] = token[n]; token[n] = 0; invariant() }
	:: atomic { token[n] && serves[n] && !want[n] && !held[n] && !BEHIND(n) && !MARKED(n) &&
		    row_ext[tab[n]] == token[n] -> want[n] = token[n]; token[n] = 0 }
	:: atomic { token[n] -> token[n] = 0 }

	/* ---- giving back, at the owner [giving_hold] */
	:: atomic { serves[n] && !held[n] && row_owner[tab[n]] == n && row_ext[tab[n]] && !live[n] &&
		    !BEHIND(n) ->
		held[n] = true; said[n] = false; mark[n] = row_epoch[tab[n]];
		/* an attach that has read its address begins again */
		if
		:: M_LATE_ATTACH
		:: !M_LATE_ATTACH -> want[n] = 0
		fi }
	/* [on_ask]: promised, looked, answered */
	:: atomic { held[OTHER(n)] && !said[OTHER(n)] && !live[n] && !gone[n] ->
		promise[n] = mark[OTHER(n)]; said[OTHER(n)] = true }
	/* [giving_propose] */
	:: atomic { held[n] && (said[n] || M_NOT_ASKED) && !cmd ->
		cmd = mark[n]; cmd_node = n }
	/* answered, refused, or not heard of any more: the mark counts until the row is newer */
	:: atomic { held[n] -> let_go(n) }
	/* [fsm_unextent] */
	:: atomic { cmd && cmd_node == n && H + 1 < LOG && row_epoch[H] + 1 < EPOCHS && row_ext[H] &&
		    (row_epoch[H] == cmd || M_ANY_EPOCH) ->
		row_push(row_epoch[H] + 1, 0, row_owner[H]); cmd = 0; invariant() }

	/* ---- a move: prepare, TRANSFER, TAKEN */
	:: atomic { serves[n] && row_owner[H] == n && row_epoch[tab[n]] == row_epoch[H] && !want[n] &&
		    H + 1 < LOG && row_epoch[H] + 1 < EPOCHS && !want[OTHER(n)] ->
		row_push(row_epoch[H] + 1, row_ext[H], OTHER(n));
		tab[n] = H;
		serves[n] = false; mark[n] = 0;
		if
		:: live[n] -> gone[n] = live[n]; live[n] = 0
		:: else
		fi;
		serves[OTHER(n)] = true; record_epoch[OTHER(n)] = row_epoch[H];
		if
		:: gone[OTHER(n)] -> live[OTHER(n)] = gone[OTHER(n)]; gone[OTHER(n)] = 0
		:: else
		fi;
		invariant() }

	/* ---- the daemon is killed */
	:: atomic { kills < KILLS && (held[n] || want[n] || promise[n] || token[n]) ->
		kills++; let_go(n); want[n] = 0; promise[n] = 0; token[n] = 0 }
	od
}

init
{
	atomic {
		row_epoch[0] = 1; row_ext[0] = 1; row_owner[0] = 0;
		serves[0] = true; record_epoch[0] = 1;
		/* Node 1 had the segment before; a program there may have it mapped still. */
		gone[1] = 1;
		run node(0); run node(1)
	}
}
