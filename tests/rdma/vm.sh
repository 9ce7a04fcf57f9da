#!/usr/bin/env bash
# Runs a command as root inside a guest with software RDMA: QEMU without KVM, Debian's kernel, this machine's
# files read-only under a layer in the guest's memory. So the guest runs what is installed and built here.
#   vm.sh setup                    fetches and unpacks the kernel's package (it is not installed), builds siw.ko
#                                  from Debian's source; into $RAMPFS_VM, else ~/.cache/rampfs-vm
#   vm.sh [OPTION...] COMMAND...   boots, runs COMMAND by bash, shows what it says, ends with its status
#     -m MIB   of memory (1024)   -t SECONDS (200)   -q "QEMU's own arguments"
#     -d KIND:INTERFACE:ADDRESS,...  RDMA devices: KIND is rxe or siw; a dummy interface where there is none
#   Status 124: out of time; 99: the guest died; 98: vm.sh can't do it, and says why in one line.
# A line "@@T text" of the guest is shown with the seconds since the start, wall clock and QEMU's own.
set -eu
dir=${RAMPFS_VM:-${XDG_CACHE_HOME:-$HOME/.cache}/rampfs-vm}
meta=linux-image-6.12-amd64 # Debian 12: of bookworm-backports; Debian 13: the metapackage is another
qemu="qemu-system-x86_64"
no() {
	echo "rdma: $*" >&2
	exit 98
}
able() {
	[ "$(uname -m)" = x86_64 ] || no "the guest's kernel is for x86_64, and this machine is $(uname -m)"
	for p in $qemu busybox cpio rdma apt-get; do
		command -v $p >/dev/null || no "$p is not here: contrib/install-deps --tests"
	done
}

# ---- the kernel, its modules, an initial file system ----

# fetch PACKAGE [VERSION]: downloads it, once.
fetch() {
	ls "$1"_*.deb >/dev/null 2>&1 || apt-get -qq -o APT::Sandbox::User=root download "$1${2:+=$2}" >/dev/null 2>&1 ||
		no "Debian's package $1 can't be fetched"
}
# An uncompressed vmlinux boots without firmware and without unpacking itself.
unpack_kernel() {
	python3 - "$1" "$2" <<'P'
import struct, subprocess, sys
d = open(sys.argv[1], "rb").read()
at, size = struct.unpack_from("<II", d, 0x248)
begin = (d[0x1f1] + 1) * 512 + at
packed = d[begin:begin + size]
tool = {b"\xfd7": ["xz", "-dc"], b"\x28\xb5": ["zstd", "-dc"], b"\x1f\x8b": ["gzip", "-dc"]}[packed[:2]]
out = subprocess.run(tool, input=packed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
assert out[:4] == b"\x7fELF"
open(sys.argv[2], "wb").write(out)
P
}
# Debian does not build siw. siw V PACKAGE_VERSION
build_siw() {
	local v=$1 dv=$2 common=${1%-amd64} minor kbuild headers
	minor=$(echo "$common" | cut -d. -f1,2)
	kbuild=$(apt-cache depends "linux-headers-$v" | sed -n 's/^ *|*Depends: \(linux-kbuild-[^ ]*\)$/\1/p' | head -n 1)
	fetch "linux-headers-$v"
	fetch "linux-headers-$common-common"
	fetch "$kbuild" "$dv"
	fetch "linux-source-$minor" "$dv"
	rm -rf "$dir/headers" "$dir/source" "$dir/siw"
	mkdir -p "$dir/source"
	for p in "linux-headers-$v" "linux-headers-$common-common" "$kbuild"; do dpkg -x "$p"_*.deb "$dir/headers"; done
	dpkg --fsys-tarfile "linux-source-$minor"_*.deb | tar -xO "./usr/src/linux-source-$minor.tar.xz" |
		tar -xJ -C "$dir/source" "linux-source-$minor/drivers/infiniband/sw/siw"
	headers=$dir/headers/usr/src/linux-headers-$v
	rm -f "$headers/vmlinux" # with it the module would need pahole
	sed -i "s,^include .*,include $dir/headers/usr/src/linux-headers-$common-common/Makefile," "$headers/Makefile"
	cp -r "$dir/source/linux-source-$minor/drivers/infiniband/sw/siw" "$dir/siw"
	make -s -j2 -C "$headers" "M=$dir/siw" CONFIG_RDMA_SIW=m modules >"$dir/siw.log" 2>&1 || {
		tail -n 5 "$dir/siw.log" >&2
		no "siw.ko does not build"
	}
	strip --strip-debug -o "$dir/siw-$v.ko" "$dir/siw/siw.ko"
	rm -rf "$dir/headers" "$dir/source" "$dir/siw"
}
# add_modules LIST MODULE...: these and those that they need, in order, into $root/m
add_modules() {
	local list=$root/m/$1 m
	shift
	for m in "$@"; do add_module "$list" "$m"; done
}
add_module() {
	local list=$1 name=$2 line file i words
	line=$(grep -E "/$name\.ko(\.xz)?:" "$modules/modules.dep") || return 0 # built in
	read -ra words <<<"${line#*:}"
	for ((i = ${#words[@]} - 1; i >= 0; i--)); do add_module "$list" "$(basename "${words[i]}" | sed 's/\.ko.*//')"; done
	if grep -qxs "$name.ko" "$root"/m/*.list; then return; fi
	file=$modules/${line%%:*}
	case $file in
	*.xz) xz -dc "$file" >"$root/m/$name.ko" ;;
	*) cp "$file" "$root/m/$name.ko" ;;
	esac
	strip --strip-debug "$root/m/$name.ko"
	echo "$name.ko" >>"$list"
}
make_initrd() {
	root=$(mktemp -d)
	mkdir -p "$root"/{bin,m,proc,sys,dev,l,u,root}
	cp "$(command -v busybox)" "$root/bin/busybox"
	add_modules 0.list virtio_mmio 9p 9pnet_virtio overlay fuse
	add_modules 1.list crc32_generic crc32-pclmul crc32c_generic crc32c-intel libcrc32c veth dummy virtio_net rdma_ucm rdma_rxe
	cp "$dir/siw-$1.ko" "$root/m/siw.ko"
	echo siw.ko >>"$root/m/1.list"
	cp "$here/init" "$root/init"
	chmod +x "$root/init"
	(cd "$root" && find . | cpio -o -H newc --quiet) >"$dir/initrd.cpio"
	rm -rf "$root"
}
setup() {
	local p v dv
	here=$(cd "$(dirname "$0")" && pwd)
	able
	mkdir -p "$dir/packages"
	exec 9>"$dir/lock"
	flock 9
	cd "$dir/packages"
	p=$(apt-cache depends $meta 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
	[ -n "$p" ] || p=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-6\.1[2-9][^ ]*\)$/\1/p' | head -n 1)
	[ -n "$p" ] || no "apt has no package of Linux 6.12 (Debian 12: bookworm-backports)"
	v=${p#linux-image-}
	if [ "$(cat "$dir/version" 2>/dev/null)" = "$v $(sha1sum <"$here/init")" ]; then return; fi
	dv=$(apt-cache policy "$p" | sed -n 's/ *Candidate: //p')
	fetch "$p"
	rm -rf "$dir/kernel"
	dpkg -x "$p"_*.deb "$dir/kernel"
	modules=$dir/kernel/lib/modules/$v
	[ -d "$modules" ] || modules=$dir/kernel/usr/lib/modules/$v
	[ -s "$modules/modules.dep" ] || busybox depmod -b "${modules%/lib/modules/*}" "$v"
	unpack_kernel "$dir/kernel/boot/vmlinuz-$v" "$dir/vmlinux"
	[ -s "$dir/siw-$v.ko" ] || build_siw "$v" "$dv"
	make_initrd "$v"
	echo "$v $(sha1sum <"$here/init")" >"$dir/version"
}

# ---- a run ----

times() {
	local line pid="" cpu
	while IFS= read -r line; do
		case $line in
		@@RC*) ;;
		@@T*)
			[ -n "$pid" ] || pid=$(cat "$run/pid")
			cpu=$(awk '{ printf "%.1f", ($14 + $15) / 100 }' "/proc/$pid/stat" 2>/dev/null || echo "?")
			echo "[$((SECONDS)) s, cpu $cpu s] ${line#@@T }"
			;;
		*) printf '%s\n' "$line" ;;
		esac
	done
}
if [ "${1-}" = setup ]; then
	setup
	exit
fi
memory=1024 limit=200 devices='' more=''
while getopts m:t:d:q: opt; do
	case $opt in
	m) memory=$OPTARG ;;
	t) limit=$OPTARG ;;
	d) devices=$OPTARG ;;
	q) more=$OPTARG ;;
	*) exit 98 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || no "no command"
[ -s "$dir/version" ] || no "no guest: tests/rdma/vm.sh setup"
run=$(mktemp -d "$dir/run.XXXXXX")
trap 'rm -rf "$run"' EXIT
printf '%s\n' "$*" >"$run/command"
# The guest's clock is this machine's: it can't measure it while this machine is busy.
khz=$(awk '/bogomips/ { print int($3 * 500); exit }' /proc/cpuinfo)
set +e
# shellcheck disable=SC2086,SC2016 # $more is words on purpose
timeout -k 3 "$limit" bash -c 'echo $$ >"$0"; exec "$@"' "$run/pid" $qemu -accel tcg -cpu max,la57=off -smp 1 -m "$memory" \
	-M microvm,rtc=on,pit=off,pic=off -nodefaults -no-user-config -display none -no-reboot -serial stdio \
	-kernel "$dir/vmlinux" -initrd "$dir/initrd.cpio" \
	-fsdev local,id=h,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-device,fsdev=h,mount_tag=host \
	$more -append "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off tsc=reliable tsc_early_khz=$khz VM_COMMAND=$run/command VM_CWD=$PWD VM_RDMA=$devices" \
	</dev/null 2>&1 | tee "$run/out" | sed -u -e 's/\r$//' -e '/PCI: Fatal: No config space/d' -e '/reboot: Power down/d' | times
status=${PIPESTATUS[0]}
rc=$(sed -n 's/^@@RC \([0-9]*\).*/\1/p' "$run/out" | tail -n 1)
[ -z "$rc" ] || exit "$rc"
if [ "$status" = 124 ] || [ "$status" = 137 ]; then
	echo "rdma: the guest was not through after $limit s" >&2
	exit 124
fi
echo "rdma: the guest died (qemu: $status)" >&2
exit 99
