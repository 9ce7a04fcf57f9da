#!/usr/bin/env bash
# This machine once more, as systemd boots it: its files with rampfs installed over them, and processes,
# mounts, network and cgroups of its own. Writes stay in memory and go with it.
#   unshare --mount --propagation unchanged --pid --uts --ipc --net --fork --kill-child tests/lib/boot_systemd.sh BUILD DIR CGROUP SETUP
# DIR is seen there, too, with the journal in it; CGROUP is the name of a new one; SETUP is sourced before
# the start, with $root where the files are. Never returns.
set -eu
build=$1 dir=$2 cgroup=$3 setup=$4 root=$2/root
case ${5-} in
"")
	# In a chroot whose root is no mount only DIR can be made private: the caller may have to unmount it.
	mount --make-rprivate / 2>/dev/null || { mount --bind "$dir" "$dir" && mount --make-private "$dir"; }
	mkdir -p "$root" "$dir/memory" "$dir/cgroups"
	mount -t tmpfs -o mode=755 tmpfs "$dir/memory"
	mkdir "$dir/memory/upper" "$dir/memory/work"
	mount -t overlay -o "lowerdir=/,upperdir=$dir/memory/upper,workdir=$dir/memory/work" overlay "$root"
	# None of this machine's services. A machine without a number is new: systemd would enable all.
	rm -rf "${root:?}"/{etc/systemd/system,lib/systemd/system/multi-user.target.wants,etc/fstab,mnt,var/log/journal}
	find "$root/lib/systemd/system-generators" -type f ! -name 'systemd-*' -delete
	mkdir -p "$root/etc/systemd/system" "${root:?}/mnt" "$root/var/log/journal"
	echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
	DESTDIR=$root cmake --install "$build" >/dev/null
	# Where systemd mounts a tmpfs on /tmp, it would cover DIR.
	ln -sf /dev/null "$root/etc/systemd/system/tmp.mount"
	# shellcheck disable=SC1090
	. "$setup"
	mount -t cgroup2 cgroup2 "$dir/cgroups"
	mkdir "$dir/cgroups/$cgroup"
	echo $$ >"$dir/cgroups/$cgroup/cgroup.procs"
	exec unshare --cgroup "$0" "$@" in-cgroup
	;;
esac
umount "$dir/cgroups"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty fuse userfaultfd; do cp -a "/dev/$device" "$root/dev/"; done
ln -s /proc/self/fd "$root/dev/fd"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root/$dir"
mount --bind "$dir" "$root/$dir"
mkdir -p "$dir/journal"
mount --bind "$dir/journal" "$root/var/log/journal"
cd "$root"
mkdir run/old
# In a chroot there is no root to be given away: it is enough to leave it.
if pivot_root . run/old 2>/dev/null; then
	umount -l run/old
	rmdir run/old
fi
# shellcheck disable=SC2093
exec chroot . /bin/sh -c 'mount --make-rshared / && exec "$@"' sh \
	env -i container=rampfs-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --system --unit=multi-user.target --log-target=journal
