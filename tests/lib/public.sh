# shellcheck shell=bash
# public_build DIR: makes $build a directory that every user can reach, for programs that run as another
# user: itself, or where it lies under a user's home (/root), a copy in DIR of what such programs need.
# $built is the whole of it, to install from.
public_build() {
	# shellcheck disable=SC2034 # for scripts that install
	built=$build
	setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$build/bin/rampfs-run" && return
	mkdir -p "$1/tests" "$1/bench"
	cp -a "$build/bin" "$build/lib" "$1/"
	find "$build/tests" -maxdepth 1 -type f -perm -u+x ! -name 'raft_*' \( ! -name 'test_*' -o -name test_ops \) \
		-exec cp -a {} "$1/tests/" \;
	find "$build/bench" -maxdepth 1 -type f -perm -u+x -exec cp -a {} "$1/bench/" \;
	chmod -R a+rX "$1"
	build=$1
	export RAMPFS_BUILD=$1 LD_LIBRARY_PATH=$1/lib
}
