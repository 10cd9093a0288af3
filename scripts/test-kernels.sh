#!/bin/bash
# Plays tests of the program on the kernels of Debian releases, each in an emulated machine without
# network. Of volumes: mounts in every mode, kill -9 and recovery, what the page cache fetches and
# shows, sync, no io_uring, an ordinary user, mapped users, labels of SELinux (without a policy). Of
# blocks: volumes as loop, ublk and NBD devices. Of memory: volumes and hosts where the kernel gives
# no more memory than there is (vm.overcommit_memory=2), so that the heap gets no address space for
# its region. The machine sees this one's files, read-only.
# Prints one line for each test and one for each kernel; fails where a test fails, or a machine
# hangs.
# Needs root, qemu-system-x86, busybox-static, kmod, nbd-client and the system's Debian archive.
# Usage: [TESTS='FILTER...'] scripts/test-kernels.sh PLACE volumes|blocks|memory [KERNEL=SUITE...]
set -euo pipefail

place=$(realpath -m "$1")
part=$2
shift 2
[ $# -gt 0 ] || set -- 6.1=bookworm 6.12=trixie
cd "$(dirname "$0")/.."
mkdir -p "$place"

# Of the kernel within, beside those that every part has.
parameters=
# What is played. Everything in it takes its time from the kernel, not from the emulation.
case $part in
volumes) tests=(
    kernels:: containers:: coherence:: without_ring::
    daemon::
    robustness::a_mount_point_comes_back
    daemon_life::a_killed_daemon
    people::an_ordinary_user
    security::a_mount_of_an_ordinary_user
    # It builds okeanos-lab, and the root is read-only.
    --skip without_ring::the_demo
) ;;
blocks) tests=(ublk:: nbd_device:: blocks::) ;;
memory)
    tests=(
        coherence:: daemon::
        daemon_rights::a_daemon_of_root
        robustness::a_mount_point_comes_back
        daemon_life::a_killed_daemon
        people::an_ordinary_user
        hosts::a_mount_takes_the_place
    )
    parameters='sysctl.vm.overcommit_memory=2 sysctl.vm.overcommit_ratio=90'
    ;;
*) echo "volumes, blocks or memory, not $part" >&2; exit 2 ;;
esac
[ -z "${TESTS:-}" ] || read -ra tests <<<"$TESTS"
# Needed within: the root as a share of this machine's, and what volumes are mounted with.
modules=(virtio_pci 9pnet_virtio 9p fuse loop ext4 xfs nbd)
# Of those kernels that have them.
others=(ublk_drv)
seconds=1800

# apt over the system's mirror and keys, with these suites and a place of its own.
archive() {
    local mirror command=$1 list=$place/apt/sources.list
    shift
    mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial"
    if [ ! -f "$list" ]; then
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/*$')
        for suite in "${suites[@]}"; do
            echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
        done >"$list.new"
        mv "$list.new" "$list"
    fi
    "$command" -qq -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$place/apt/lists" -o Dir::Cache="$place/apt/cache" \
        -o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}

# The newest kernel of a series: its package, unpacked into $place/SERIES.
fetch() {
    local series=$1 version package
    version=$(archive apt-cache madison linux-image-amd64 | awk '{ print $3 }' | { grep "^${series//./\\.}\." || true; } | sort -V | tail -1)
    [ -n "$version" ] || { echo "no kernel $series in ${suites[*]}" >&2; return 1; }
    package=$(archive apt-cache show "linux-image-amd64=$version" | sed -n 's/^Depends: \([^ ]*\).*/\1/p')
    rm -rf "$place/$series" "$place/$series.new"
    mkdir -p "$place/$series.new"
    (cd "$place/$series.new" && archive apt-get download "$package")
    dpkg-deb --extract "$place/$series.new/$package"_*.deb "$place/$series.new"
    rm "$place/$series.new/"*.deb
    mv "$place/$series.new" "$place/$series"
}

# An initrd that loads the modules, takes this machine's root, and runs the tests.
make_initrd() {
    local series=$1 root=$place/$1 tree=$place/initrd-$1 release number=100 file
    release=$(basename "$(echo "$root"/boot/vmlinuz-*)")
    release=${release#vmlinuz-}
    # Newer packages have their modules below /usr.
    [ -d "$root/lib/modules" ] || ln -s usr/lib "$root/lib"
    depmod --basedir "$root" "$release"
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,dev,modules,new,proc}
    cp "$(command -v busybox)" "$tree/bin/busybox"
    depends() { modprobe --dirname "$root" --set-version "$release" --ignore-install --show-depends --all "$@"; }
    { depends "${modules[@]}" && { depends "${others[@]}" 2>/dev/null || true; }; } |
        sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r file; do
        number=$((number + 1))
        case $file in
        *.xz) xz -dc "$file" ;;
        *.zst) zstd -qdc "$file" ;;
        *) cat "$file" ;;
        esac >"$tree/modules/$number.ko"
    done
    cat >"$tree/init" <<INIT
#!/bin/busybox sh
busybox mount -t devtmpfs none /dev
for module in /modules/*; do busybox insmod \$module || echo "\$module is not taken"; done
busybox mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,ro,msize=262144 root /new
exec busybox switch_root /new /bin/bash $PWD/scripts/test-kernels-guest.sh $binary ${tests[*]}
INIT
    chmod +x "$tree/init"
    (cd "$tree" && find . | busybox cpio -o -H newc 2>"$place/cpio" | gzip -1) >"$place/initrd-$series.gz"
}

boot() {
    local series=$1
    # That of an earlier run would be judged where the machine does not start.
    rm -f "$place/console-$series"
    timeout --signal=KILL "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 2G -smp 2 \
        -nodefaults -display none -no-reboot -serial "file:$place/console-$series" \
        -kernel "$place/$series"/boot/vmlinuz-* -initrd "$place/initrd-$series.gz" \
        -append 'console=ttyS0 panic=-1 quiet no_timer_check mitigations=off nokaslr security=selinux '"$parameters" \
        -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=root,mount_tag=root
}

# One line a test, what failed, and a summary.
judge() {
    local series=$1 console=$place/console-$1
    tr -d '\r' <"$console" | sed -n "s/^\(test [^ ]* \.\.\. .*\)/$series: \1/p"
    if grep -q '^test result: ok\. [1-9]' "$console"; then
        echo "$series: $(tr -d '\r' <"$console" | sed -n 's/^test result: ok\. //p')"
    else
        tr -d '\r' <"$console" | sed -n '/^failures:/,$p' | tail -n 200
        grep -q '^test result:' "$console" || tail -n 40 "$console"
        echo "$series: FAILED; the whole output is $console"
        return 1
    fi
}

binary=$(${CARGO:-cargo} test --quiet --package cli --test all --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/all-[^"]*\)".*/\1/p')
suites=("${@#*=}")
fresh=
for series in "${@%=*}"; do
    [ -d "$place/$series" ] || fresh=yes
done
if [ -n "$fresh" ]; then
    # Of these suites: an earlier run may have had others.
    rm -f "$place/apt/sources.list"
    archive apt-get update
fi
running=()
for series in "${@%=*}"; do
    [ -d "$place/$series" ] || fetch "$series"
    make_initrd "$series"
    boot "$series" &
    running+=($!)
done
status=0
# A machine that is stopped has printed no result.
for machine in "${running[@]}"; do wait "$machine" || true; done
for series in "${@%=*}"; do judge "$series" || status=1; done
echo "test-kernels: $SECONDS s"
exit $status
