#!/bin/bash
# How each golden image was made. An image that exists is never made again: formats once written are
# kept for ever. A new image gets a function here; its `expect` is written by GOLDEN_WRITE_EXPECT=1
# cargo test -p hostile --test all golden and read by a person before it is committed. Needs root.
# Usage: scripts/make-golden.sh OKEANOS
set -euo pipefail

if [ "${INSIDE:-}" != yes ]; then
    INSIDE=yes exec unshare --mount --propagation private "$0" "$@"
fi
okeanos=$(realpath "$1")
golden=$(realpath "$(dirname "$0")/../golden")
place=$(mktemp -d)
finish() {
    ! mountpoint -q "$place/m" || umount -l "$place/m"
    rm -rf "$place"
}
trap finish EXIT
cd "$place"
mkdir m
export E2FSPROGS_FAKE_TIME=1700000000
uuid=6f6b6561-6e6f-4a39-9d0e-676f6c64656e
# No volume's, so that e2fsck, which looks for it among the devices that are there, never finds it
# on another image.
journal_uuid=6f6b6561-6e6f-4a39-9d0e-6a6f75726e61

make_volume() { # SIZE ARGUMENTS...
    local size=$1
    shift
    rm -f image
    mke2fs -q -F -U "$uuid" -E hash_seed=$uuid,lazy_itable_init=0 "$@" image "$size"
}
with_kernel() { # WORK...: the volume as the kernel leaves it
    mount -o loop image m
    "$@"
    umount m
}
# The volume as a crash leaves it: everything synced, nothing unmounted.
crash_okeanos() { # OPTIONS WORK...
    local options=$1
    shift
    "$okeanos" mount -o "commit=1h,writeback=1h,expire=1h,$options" image m
    local daemon
    daemon=$("$okeanos" stats --json m | sed -n 's/.*"process": *\([0-9]*\).*/\1/p')
    "$@"
    kill -9 "$daemon"
    umount -l m
    sleep 0.5
}
crash_kernel() { # OPTIONS WORK...
    local options=$1
    shift
    mount -o "loop,commit=300,$options" image m
    "$@"
    cp --sparse=always image crashed
    umount m
    mv crashed image
}
keep() { # NAME [FILE...]: the image becomes golden/NAME/image.zst, others keep their names
    mkdir -p "$golden/$1"
    zstd -q -19 -f image -o "$golden/$1/image.zst"
    [ ! -e journal ] || zstd -q -19 -f journal -o "$golden/$1/journal.zst"
    rm -f image journal
    echo "$1: $(stat -c %s "$golden/$1/image.zst") bytes"
}

# A little of everything.
tree() {
    mkdir -p m/a/b/c m/many
    echo 'The sea is never full.' >m/a/proverb
    seq 20000 >m/a/numbers
    : >m/a/empty
    ln m/a/proverb m/a/b/linked
    ln -s proverb m/a/fast
    ln -s "$(printf 'long/%.0s' $(seq 40))end" m/a/slow
    mkfifo m/a/b/fifo
    mknod m/a/b/null c 1 3
    truncate -s 3M m/a/sparse
    echo end >>m/a/sparse
    for number in $(seq 40); do echo "$number" >"m/many/file-$number"; done
    chmod 2755 m/a/b
    chown 1000:1000 m/a/proverb
}
attributes() {
    tree
    setfattr -n user.colour -v blue m/a/proverb
    setfattr -n user.large -v "$(printf 'x%.0s' $(seq 500))" m/a/numbers
    setfattr -n trusted.secret -v hidden m/a
    setfacl -m u:1000:rw,g:1001:r m/a/proverb
    setfacl -d -m u:1000:rwx m/a/b
    mkdir m/a/b/inherits
}
large_directory() {
    mkdir m/large
    (cd m/large && seq -f 'a-name-long-enough-to-fill-blocks-%06g' 3000 | xargs touch)
    (cd m/large && seq -f 'a-name-long-enough-to-fill-blocks-%06g' 1 7 3000 | xargs rm)
}
# One extent a block, so that the tree gets levels.
deep_extents() {
    for block in $(seq 0 2 1600); do
        printf "block %5d" "$block" | dd of=m/comb bs=1024 seek="$block" conv=notrunc status=none
    done
}
synced_small_writes() {
    tree
    sync m/many
    for number in $(seq 12); do
        printf 'line %s of many small ones\n' "$number" | dd of=m/a/log oflag=append,dsync conv=notrunc status=none
        printf 'page' | dd of=m/a/numbers bs=1 seek=$((number * 5000)) conv=notrunc,fsync status=none
    done
    dd if=/dev/zero bs=4096 count=2 status=none | tr '\0' Z | dd of=m/a/blocks bs=8192 oflag=dsync status=none
}
# Blocks that were logged as metadata are freed and become data: only revokes keep the replay off
# them.
freed_and_reused() {
    mkdir m/gone
    (cd m/gone && seq -f 'name-%040g' 400 | xargs touch)
    sync m/gone
    rm -r m/gone
    sync m
    yes 'I was a directory.' | head -c 6M | dd of=m/data bs=1M conv=fsync status=none || true
}
many_commits() {
    for round in $(seq 900); do
        printf 'round %6d\n' "$round" | dd of="m/file-$((round % 7))" oflag=append,dsync conv=notrunc status=none
    done
}
# One is no longer than a sector.
many_short_commits() { for _ in 1 2 3; do many_commits; done; }
# Files all over the volume, to be read while others are written.
far_apart() {
    for group in 0 1 2 3; do
        mkdir m/far-$group
        head -c 4M /dev/zero | tr '\0' F >m/far-$group/file
    done
}
# Each write finds the arm in another place, so that each run lies in another log than the one
# before. A snapshot covers that many.
wandering_writes() {
    synced_small_writes
    for number in $(seq 240); do
        dd if=m/far-$((number % 4))/file of=/dev/null bs=64K skip=$((number / 4 * 13 % 64)) count=1 iflag=direct status=none
        printf 'line %s\n' "$number" | dd of="m/a/log-$((number % 5))" oflag=append,dsync conv=notrunc status=none
    done
    # It is written in the background.
    sleep 2
    for number in 1 2 3; do
        printf 'late %s\n' "$number" | dd of=m/a/log oflag=append,dsync conv=notrunc status=none
    done
}
# Deleted while open: an orphan at the crash.
orphans() {
    tree
    exec 7>m/a/unlinked
    head -c 300000 /dev/zero | tr '\0' Q >&7
    rm m/a/unlinked
    exec 8>m/a/unlinked-too
    echo short >&8
    rm m/a/unlinked-too
    sync -f m/many
}
close_orphans() { exec 7>&- 8>&-; }

golden_ext4() { make_volume 8M -t ext4 -b 4096; with_kernel tree; }
golden_ext4-1k() { make_volume 8M -t ext4 -b 1024; with_kernel tree; }
golden_ext3() { make_volume 8M -t ext3 -b 1024; with_kernel tree; }
golden_ext4-small-inodes() { make_volume 8M -t ext4 -b 2048 -I 128; with_kernel tree; }
golden_ext4-no-checksums() { make_volume 8M -t ext4 -b 1024 -O ^metadata_csum,^64bit; with_kernel tree; }
golden_attributes() { make_volume 8M -t ext4 -b 4096; with_kernel attributes; }
golden_htree() { make_volume 8M -t ext4 -b 1024 -N 4096; with_kernel large_directory; }
golden_deep-extents() { make_volume 8M -t ext4 -b 1024; with_kernel deep_extents; }
golden_external-journal() {
    mke2fs -q -F -U "$journal_uuid" -b 4096 -O journal_dev journal 5M
    make_volume 8M -t ext4 -b 4096 -O ^has_journal
    with_kernel tree
    for request in 'feature has_journal' "set_super_value journal_uuid $journal_uuid" 'set_super_value journal_dev 0x700'; do
        debugfs -w -R "$request" image 2>>said
    done
}
golden_okeanos-written() {
    make_volume 8M -t ext4 -b 1024 -N 4096
    "$okeanos" mount -o data=wasteless image m
    attributes
    large_directory
    "$okeanos" umount m
}
golden_okeanos-written-ext3() {
    make_volume 8M -t ext3 -b 1024
    "$okeanos" mount -o data=journal image m
    tree
    "$okeanos" umount m
}
golden_dirty-plain-kernel() { make_volume 16M -t ext4 -b 4096; crash_kernel data=ordered synced_small_writes; }
golden_dirty-plain-kernel-data() { make_volume 16M -t ext4 -b 1024; crash_kernel data=journal synced_small_writes; }
golden_dirty-ext3-kernel() { make_volume 16M -t ext3 -b 1024; crash_kernel data=ordered synced_small_writes; }
golden_dirty-plain() { make_volume 16M -t ext4 -b 4096; crash_okeanos data=journal synced_small_writes; }
golden_dirty-ordered() { make_volume 16M -t ext4 -b 1024; crash_okeanos data=ordered synced_small_writes; }
golden_dirty-wasteless() { make_volume 16M -t ext4 -b 4096; crash_okeanos data=wasteless,records=blocks synced_small_writes; }
# Since the journal superblock keeps a copy of where the log begins.
golden_dirty-wasteless-2() { make_volume 16M -t ext4 -b 4096; crash_okeanos data=wasteless,records=blocks synced_small_writes; }
golden_dirty-wasteless-1k() { make_volume 16M -t ext4 -b 1024; crash_okeanos data=wasteless,records=blocks synced_small_writes; }
golden_dirty-selective() { make_volume 16M -t ext4 -b 4096; crash_okeanos data=selective,records=blocks synced_small_writes; }
golden_dirty-packed() { make_volume 16M -t ext4 -b 4096; crash_okeanos data=wasteless,records=packed,log_unit=512 synced_small_writes; }
golden_dirty-packed-1k() { make_volume 16M -t ext4 -b 1024; crash_okeanos data=selective,records=packed,log_unit=1K synced_small_writes; }
# Commits lie apart, and the log's free room between them is nobody's.
golden_dirty-packed-gaps() {
    make_volume 16M -t ext4 -b 4096
    crash_okeanos data=wasteless,records=packed,log_unit=512,log_gap=48K synced_small_writes
}
scattered_volume() {
    rm -f image
    "$okeanos" mkfs --scattered-logs=log-size=1M,group-size=8M --journal-size 4M image 32M -- \
        -q -b 1024 -U "$uuid" -E hash_seed=$uuid,lazy_itable_init=0
    with_kernel far_apart
}
golden_dirty-scattered() { scattered_volume; crash_okeanos log=scattered,data=wasteless,records=blocks synced_small_writes; }
# A snapshot of the mapping table counts: whole blocks, parts of blocks, and packed transactions.
golden_dirty-snapshot() { scattered_volume; crash_okeanos log=scattered,data=journal,records=blocks wandering_writes; }
golden_dirty-snapshot-parts() { scattered_volume; crash_okeanos log=scattered,data=wasteless,records=blocks wandering_writes; }
golden_dirty-snapshot-packed() {
    scattered_volume
    crash_okeanos log=scattered,data=adaptive,records=packed,log_unit=512 wandering_writes
}
# Since XXH64 holds a transaction together.
golden_dirty-xxh64() { make_volume 16M -t ext4 -b 4096; crash_okeanos data=wasteless,records=blocks synced_small_writes; }
golden_dirty-xxh64-packed() { make_volume 16M -t ext4 -b 4096; crash_okeanos data=wasteless,records=packed,log_unit=512 synced_small_writes; }
golden_dirty-xxh64-scattered() { scattered_volume; crash_okeanos log=scattered,data=wasteless,records=blocks synced_small_writes; }
golden_dirty-xxh64-snapshot() { scattered_volume; crash_okeanos log=scattered,data=journal,records=blocks wandering_writes; }
golden_dirty-xxh64-snapshot-parts() { scattered_volume; crash_okeanos log=scattered,data=wasteless,records=blocks wandering_writes; }
golden_dirty-xxh64-snapshot-packed() {
    scattered_volume
    crash_okeanos log=scattered,data=adaptive,records=packed,log_unit=512 wandering_writes
}
golden_revokes-packed() { make_volume 16M -t ext4 -b 1024; crash_okeanos data=ordered,records=packed,log_unit=512 freed_and_reused; }
golden_wrapped-log-packed() {
    make_volume 8M -t ext4 -b 1024 -J size=1
    crash_okeanos data=wasteless,records=packed,log_unit=512,writeback=50ms,expire=100ms many_short_commits
}
golden_revokes-kernel() { make_volume 16M -t ext4 -b 1024; crash_kernel data=ordered freed_and_reused; }
golden_revokes() { make_volume 16M -t ext4 -b 1024; crash_okeanos data=ordered freed_and_reused; }
golden_wrapped-log-kernel() {
    make_volume 8M -t ext4 -b 1024 -J size=1
    crash_kernel data=ordered many_commits
}
golden_wrapped-log() {
    make_volume 8M -t ext4 -b 1024 -J size=1
    crash_okeanos data=wasteless,records=blocks,writeback=50ms,expire=100ms many_commits
}
golden_orphan-list() { make_volume 16M -t ext4 -b 1024; crash_okeanos data=wasteless,records=blocks orphans; close_orphans; }
golden_orphan-list-kernel() { make_volume 16M -t ext4 -b 1024; crash_kernel_with_orphans; }
golden_orphan-file() { make_volume 16M -t ext4 -b 1024 -O orphan_file; crash_okeanos data=wasteless,records=blocks orphans; close_orphans; }
golden_orphan-file-kernel() { make_volume 16M -t ext4 -b 1024 -O orphan_file; crash_kernel_with_orphans; }
crash_kernel_with_orphans() {
    mount -o loop,commit=300 image m
    orphans
    cp --sparse=always image crashed
    close_orphans
    umount m
    mv crashed image
}

# Damage. `poke AT BYTES` writes bytes (as printf wants them) at a place of the image.
poke() { printf "$2" | dd of=image bs=1 seek="$1" conv=notrunc status=none; }
from_golden() { zstd -q -d -f "$golden/$1/image.zst" -o image; }
debug() { debugfs -w -R "$1" image >>said 2>&1; }
golden_damaged-superblock-checksum() { from_golden ext4; poke $((1024 + 0x78)) 'x'; }
golden_damaged-not-a-volume() { head -c 1M /dev/zero | tr '\0' '#' >image; }
golden_damaged-empty() { : >image; }
golden_damaged-truncated() { from_golden ext4; truncate -s 5M image; }
golden_damaged-group-descriptor() { from_golden ext4; poke 4096 '\377\377\377'; }
golden_damaged-group-descriptor-no-checksum() {
    make_volume 8M -t ext4 -b 1024 -O ^metadata_csum,^64bit,^uninit_bg
    with_kernel tree
    poke $((2048 + 8)) '\377\377\377\177'
}
golden_damaged-inode-checksum() { from_golden ext4; poke $((4096 * $(debugfs -R 'imap /a/numbers' image 2>>said | sed -n 's/.*block \([0-9]*\), offset.*/\1/p') + $(printf %d "$(debugfs -R 'imap /a/numbers' image 2>>said | sed -n 's/.*offset \(0x[0-9a-f]*\).*/\1/p')") + 4)) '\001'; }
golden_damaged-directory-loop() {
    from_golden ext4
    debug 'link a a/b/c/loop'
}
golden_damaged-extent-out-of-range() {
    from_golden ext4
    debug 'set_inode_field a/numbers block[IND] 0'
    debug 'extent_open a/numbers' || true
    debug 'set_inode_field a/numbers block[5] 0x7ffffff0'
}
golden_damaged-extent-over-metadata() { from_golden ext4; debug 'set_inode_field a/numbers block[5] 1'; }
golden_damaged-directory-block() {
    from_golden ext4
    poke $((4096 * $(debugfs -R 'bmap many 0' image 2>>said) + 40)) '\377\377\377\377'
}
golden_damaged-journal-middle() {
    from_golden dirty-wasteless
    local start
    start=$(debugfs -R 'bmap <8> 0' image 2>>said)
    poke $(((start + 3) * 4096 + 100)) 'damage'
}
golden_damaged-journal-middle-plain() {
    from_golden dirty-plain
    local start
    start=$(debugfs -R 'bmap <8> 0' image 2>>said)
    poke $(((start + 3) * 4096 + 100)) 'damage'
}
# Within a transaction of which later ones say that it was durable.
golden_damaged-packed-middle() {
    from_golden dirty-packed
    local unit
    unit=$("$okeanos" inspect journal image | sed -n 's/^T[0-9]* packed at log block \([0-9]*\):.*/\1/p' | sed -n 15p)
    poke $(($(debugfs -R "bmap <8> $((unit / 8))" image 2>>said) * 4096 + unit % 8 * 512 + 100)) 'damage'
}
# The header of a transaction that lies behind a gap, and of which later ones say that it was
# durable.
golden_damaged-packed-gaps() {
    from_golden dirty-packed-gaps
    local unit
    unit=$("$okeanos" inspect journal image | sed -n 's/^T[0-9]* packed at log block \([0-9]*\):.*/\1/p' | sed -n 15p)
    poke $(($(debugfs -R "bmap <8> $((unit / 8))" image 2>>said) * 4096 + unit % 8 * 512)) 'damage'
}
# The first descriptor of the log: without a look ahead the log would seem empty, and to e2fsck it
# does.
golden_damaged-journal-header() { from_golden dirty-wasteless; lose_log_block 1; }
golden_damaged-journal-header-plain() { from_golden dirty-plain; lose_log_block 1; }
lose_log_block() { # NUMBER
    dd if=/dev/zero of=image bs=4096 seek=$(($(debugfs -R 'bmap <8> 0' image 2>>said) + $1)) count=1 conv=notrunc status=none
}
# What tune2fs makes of a live log that it does not understand.
golden_damaged-journal-forgotten() { from_golden dirty-wasteless-2; ! tune2fs -L new image >>said 2>&1; }
golden_damaged-journal-huge() {
    make_volume 8M -t ext4 -b 1024 -O ^metadata_csum
    with_kernel tree
    poke $(($(debugfs -R 'bmap <8> 0' image 2>>said) * 1024 + 16)) '\377\377\377\377'
}
golden_damaged-unknown-read-only-compat() { from_golden ext4; debug 'set_super_value feature_ro_compat 0x4000046b'; }
group_block() { dumpe2fs image 2>>said | sed -n "s/.*$1 at \([0-9]*\).*/\1/p" | head -1; }
golden_damaged-block-bitmap() { from_golden ext4; poke $(($(group_block 'Block bitmap') * 4096 + 100)) '\125'; }
golden_damaged-inode-bitmap() { from_golden ext4; poke $(($(group_block 'Inode bitmap') * 4096 + 10)) '\125'; }
golden_damaged-attributes() {
    from_golden attributes
    poke $((4096 * $(debugfs -R 'stat a/numbers' image 2>>said | sed -n 's/.*File ACL: \([0-9]*\).*/\1/p') + 40)) '\377\377\377\377'
}
golden_damaged-extent-node() { from_golden deep-extents; poke $((1024 * $(extent_node comb) + 14)) '\377\377'; }
extent_node() { debugfs -R "stat $1" image 2>>said | sed -n 's/.*(ETB0):\([0-9]*\).*/\1/p' | head -1; }
# Without checksums, so that nothing but looking finds them.
without_checksums() { make_volume 8M -t ext4 -b 1024 -O ^metadata_csum,^64bit,^uninit_bg -N 4096; }
golden_damaged-extent-loop() {
    without_checksums
    with_kernel deep_extents
    local node
    node=$(debugfs -R 'extents comb' image 2>>said | awk '$1 == "0/" { print $8; exit }')
    # The first child of the node below the root is the node itself.
    poke $((1024 * node + 12 + 4)) "$(little "$node")"
}
little() { printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24)); }
golden_damaged-index-loop() {
    without_checksums
    with_kernel large_directory
    local root
    root=$(debugfs -R 'bmap large 0' image 2>>said)
    # Every name that is not among the first is looked for in the root itself.
    poke $((1024 * root + 40 + 4)) "$(little 0)"
    poke $((1024 * root + 48 + 4)) "$(little 0)"
}
golden_damaged-directory-huge() { from_golden ext4; debug 'set_inode_field many size 0x3fffffff000'; }
golden_damaged-superblock-huge() {
    without_checksums
    with_kernel tree
    poke $((1024 + 0x28)) '\377\377\377\377'
}
golden_damaged-journal-superblock() {
    from_golden dirty-wasteless
    poke $((4096 * $(debugfs -R 'bmap <8> 0' image 2>>said))) 'garbage'
}
golden_damaged-unknown-incompat() { from_golden ext4; debug 'set_super_value feature_incompat 0x400002c2'; }
golden_damaged-journal-missing() { from_golden external-journal; }
golden_refused-quota() { make_volume 8M -t ext4 -b 1024 -O quota; }
golden_inline-data-unused() { make_volume 8M -t ext4 -b 1024 -O inline_data; }
golden_refused-encrypt() { make_volume 8M -t ext4 -b 4096 -O encrypt; }
golden_refused-bigalloc() { make_volume 8M -t ext4 -b 1024 -O bigalloc -C 4096; }

for name in $(declare -F | sed -n 's/^declare -f golden_//p' | grep -v '^damaged-' ) \
    $(declare -F | sed -n 's/^declare -f golden_\(damaged-.*\)/\1/p'); do
    [ ! -d "$golden/$name" ] || continue
    "golden_$name"
    keep "$name"
done
