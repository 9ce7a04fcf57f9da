# shellcheck shell=bash
# released_build COMMIT: builds a released commit once for this build, plainly, and sets $released to it.
# Status 1 where this clone does not have the commit.
released_build() {
	released=$RAMPFS_BUILD/released-$1
	[ ! -e "$released/made" ] || return 0
	git rev-parse -q --verify "$1^{commit}" >/dev/null || return 1
	rm -rf "$released"
	mkdir -p "$released/source"
	git archive "$1" | tar -x -C "$released/source"
	# Its warnings were errors, also those of compilers that came later; and later headers give
	# fuse_open_out's padding a name.
	sed -i 's/ -Werror//' "$released/source/CMakeLists.txt"
	grep -q 'backing_id' /usr/include/linux/fuse.h &&
		sed -i 's/out\.padding/out.backing_id/' "$released/source/rampfs/mount/pass.c"
	cmake -S "$released/source" -B "$released" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRAMPFS_TESTS=OFF \
		-DCMAKE_C_COMPILER=cc -DCMAKE_CXX_COMPILER=c++ >"$released/log" 2>&1 &&
		cmake --build "$released" -- --quiet >>"$released/log" 2>&1 || {
		tail -n 20 "$released/log" >&2
		fail "$1 does not build"
	}
	touch "$released/made"
}
