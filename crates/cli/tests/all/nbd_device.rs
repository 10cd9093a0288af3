//! Tests of block volumes as devices of the kernel's NBD client.

use crate::driver_devices::{self, Driver};

const DRIVER: Driver = Driver {
    via: "nbd",
    file: "/sys/module/nbd",
    refusal: "no NBD device: .* is not loaded.*modprobe nbd",
};

driver_devices::shared_tests!(DRIVER);

/// The kernel sends them again over the next connection, some seconds after it is there.
#[test]
fn requests_in_flight_are_answered_by_the_next_daemon() {
    driver_devices::run(
        &DRIVER,
        r#"attach --write-through; NAME=$L; D=$(daemon); kill -STOP $D
        dd if=written of=$L bs=4096 count=1 oflag=direct conv=notrunc status=none & W=$!
        dd if=$L of=read bs=4096 count=1 skip=9 iflag=direct status=none & R=$!
        sleep 0.5; kill -9 $D; gone $D; sleep 0.5; kill -0 $W $R
        attach --write-through; [ $L = $NAME ]; wait $W; wait $R; cmp -n 4096 read /dev/zero
        dd if=$L bs=4096 count=1 iflag=direct status=none | cmp -n 4096 - written; detach"#,
    );
}

#[test]
fn requests_in_flight_fail_when_their_daemon_dies() {
    driver_devices::run(
        &DRIVER,
        r#"
        reading() {
            (dd if=$L of=read bs=4096 count=1 iflag=direct status=none && echo read >outcome ||
                echo failed >outcome) 2>/dev/null &
            R=$!; sleep 0.5
        }
        attach; D=$(daemon); kill -STOP $D; reading; [ ! -e outcome ]
        kill -9 $D; gone $D; timeout 60 tail --pid $R -f /dev/null; [ $(cat outcome) = failed ]
        # As when a whole control group is killed: then the next attachment has them fail.
        rm outcome; attach; D=$(daemon); H=$(pgrep -P $D); kill -STOP $D; reading
        kill -9 $H $D; gone $D; sleep 1; [ ! -e outcome ]
        attach; timeout 60 tail --pid $R -f /dev/null; [ $(cat outcome) = failed ]
        mkfs.ext4 -q $L; mount $L here; umount here; detach"#,
    );
}

#[test]
fn a_device_has_the_limits_of_its_volume_and_commands_find_it() {
    driver_devices::run(
        &DRIVER,
        r#"attach -o data=wasteless
        [ "$(knob queue/write_cache)" = 'write back' ]; [ $(knob queue/fua) = 1 ]
        [ $(knob ro) = 0 ]
        [ $(knob queue/logical_block_size) = 512 ]; [ $(knob queue/max_hw_sectors_kb) = 32768 ]
        [ $(knob queue/discard_max_bytes) -gt 0 ]
        refuses $O blocks attach image 2>said; grep -q "attached already as $L" said
        $O list >listed; grep -q "^$L .*image.*wasteless.*nbd.*ok" listed
        $O stats --json $L >counts; grep -q '"transport": "nbd"' counts
        grep -q '"atomic_write_bytes": 1048576' counts
        dd if=written of=$L bs=512 count=500 seek=3 oflag=direct conv=fsync,notrunc status=none
        dd if=$L bs=512 count=500 skip=3 iflag=direct status=none | cmp -n 256000 - written
        dd if=written of=$L bs=4096 count=8 oflag=direct,dsync conv=notrunc status=none
        $O stats --json $L | sed -n 's/^ *"durable_writes": \([0-9]*\),*$/\1/p' | grep -qv '^0$'
        blkdiscard -z -o 0 -l 1M $L
        dd if=$L bs=1M count=1 iflag=direct status=none | cmp -n 1048576 - /dev/zero
        blkdiscard -o 1M -l 8M $L
        $O stats --json $L | sed -n 's/^ *"discards": \([0-9]*\),*$/\1/p' | grep -qv '^0$'
        # A table of partitions is read when the device starts.
        printf '\0\0\0\0\203\0\0\0\0\010\0\0\0\100\0\0' |
            dd of=$L bs=1 seek=446 conv=notrunc status=none
        printf '\125\252' | dd of=$L bs=1 seek=510 conv=notrunc status=none; detach; attach
        for i in $(seq 100); do [ -b ${L}p1 ] && break; sleep 0.1; done; [ -b ${L}p1 ]
        mkfs.ext4 -q -F $L; mount $L here; refuses $O blocks detach $L 2>said
        grep -q 'is mounted on .*here' said
        truncate -s 128M image; refuses $O blocks grow image 2>said
        grep -q 'keeps its size while it is attached' said
        cp written here/file; sync -f here; reads_back; $O checkpoint image; umount here; clean $L
        detach $L
        attach --read-only; [ $(knob ro) = 1 ]
        refuses dd if=written of=$L bs=4096 count=1 oflag=direct status=none 2>said
        mount -o ro $L here; reads_back; umount here; detach"#,
    );
}

/// The printed path can be used at once, and is that of the whole volume. Others, such as udev,
/// read the device as soon as it is there.
#[test]
fn a_device_is_printed_when_it_has_its_size() {
    driver_devices::run(
        &DRIVER,
        r#"SIZE=$($O blocks inspect --json image |
            sed -n 's/^ *"exported_bytes": \([0-9]*\),*$/\1/p')
        UUID=$($O blocks inspect --json image | sed -n 's/^ *"uuid": "\([^"]*\)",*$/\1/p')
        [ "$UUID" ]
        as_udev() {
            until [ -e stop ]; do
                AT=$(grep -ls "$UUID" /sys/block/nbd*/backend) &&
                    dd if=/dev/$(basename $(dirname $AT)) of=/dev/null bs=4096 count=1 \
                        iflag=direct status=none 2>/dev/null ||
                    true
            done
        }
        as_udev & U=$!
        for how in '' --write-through '' --write-through; do
            attach $how; [ "$(cat /sys/block/$(basename $L)/size)" = $((SIZE / 512)) ]
            dd if=$L bs=512 count=1 skip=$((SIZE / 512 - 1)) iflag=direct status=none |
                cmp -n 512 - /dev/zero
            detach $L
        done
        touch stop; wait $U || true"#,
    );
}

/// A mount namespace that is older than the attachment shows neither the daemon's mount nor, with
/// a `/run` of its own, its directory.
#[test]
fn a_device_whose_daemon_is_not_seen_stays_connected() {
    driver_devices::run(
        &DRIVER,
        r#"unshare -m sleep 600 & S=$!
        unshare -m sh -c 'mount -t tmpfs none /run; exec sleep 600' & T=$!; sleep 0.5
        elsewhere() { nsenter -m -t $1 timeout 60 $O blocks "${@:2}"; }
        for how in '' --write-through; do
            attach $how; cp image copy; B=$(knob backend)
            for from in $S $T; do
                for what in $L $PWD/image; do
                    refuses elsewhere $from detach $what 2>said
                    tr '\n' ' ' <said | grep -q 'a daemon serves .*not seen from here'
                done
                refuses elsewhere $from attach --via $VIA $how $PWD/image 2>said
                refuses elsewhere $from attach --via $VIA $how $PWD/copy 2>said
                grep -q 'of another disk' said
                dd if=written of=$L bs=4096 count=9 oflag=direct conv=notrunc status=none
            done
            # Of a daemon that died, what waits is found from there, too.
            if [ "$how" ]; then
                D=$(daemon); kill -9 $D; gone $D
                refuses elsewhere $T attach --via loop $PWD/image 2>said; grep -q 'I/O waits' said
                elsewhere $T detach $L; timeout 60 $O blocks detach image 2>said || true
            else
                detach
            fi
            [ "$(knob backend 2>/dev/null)" != "$B" ]
        done
        kill $S $T"#,
    );
}

/// Kernels that have their NBD client answer in one network namespace alone are asked there.
#[test]
fn another_network_namespace_attaches_or_says_where_to() {
    driver_devices::run(
        &DRIVER,
        r#"if L=$(unshare -n timeout 100 $O blocks attach --via nbd image 2>said); then
            [ -b $L ]; detach
        else
            grep -q 'does not answer in this network namespace' said; cat said; attach; detach
        fi"#,
    );
}

/// A number is used again by the next program that connects a device.
#[test]
fn a_device_of_another_program_is_not_touched() {
    driver_devices::run(
        &DRIVER,
        r#"attach; OURS=$L; D=$(daemon); kill -9 $D; gone $D
        for i in $(seq 100); do
            [ -e /sys/block/$(basename $OURS)/backend ] || break; sleep 0.1
        done
        truncate -s 8M other; $O nbd --socket other.sock other >uri & N=$!
        for i in $(seq 100); do [ -s uri ] && break; sleep 0.1; done
        # Another test may have the number for a while.
        connect() {
            for i in $(seq 100); do
                timeout 60 nbd-client -unix other.sock $OURS >said 2>&1 && return; sleep 1
            done
            cat said; return 1
        }
        connect
        theirs() {
            [ $(blockdev --getsize64 $OURS) = $((8 << 20)) ]
            dd if=$OURS bs=4096 count=1 iflag=direct status=none >read
        }
        attach; [ $L != $OURS ]; detach; theirs; refuses $O blocks detach $OURS 2>said; theirs
        timeout 60 nbd-client -d $OURS >said
        # It takes the number while our daemon lives.
        attach; OURS=$L; D=$(daemon); H=$(pgrep -P $D); timeout 60 nbd-client -d $OURS >said
        connect; theirs
        kill -9 $D; gone $D; gone $H; theirs; attach; [ $L != $OURS ]; detach; theirs
        timeout 60 nbd-client -d $OURS >said; kill $N; wait $N"#,
    );
}

/// A write that the kernel issues while the device is taken away would wait for a reader, and all
/// commands of generic netlink behind it.
#[test]
fn a_device_with_waiting_writes_can_be_taken_away() {
    driver_devices::run(
        &DRIVER,
        r#"for how in oflag=direct ''; do
            attach --write-through; D=$(daemon); kill -9 $D; gone $D
            (dd if=/dev/zero of=$L bs=1M count=4 $how conv=notrunc,fsync status=none &&
                echo written >outcome || echo failed >outcome) 2>/dev/null &
            W=$!
            sleep 1; [ ! -e outcome ]; timeout 60 $O blocks detach image; wait $W
            [ $(cat outcome) = failed ]; rm outcome
        done
        # As when a whole control group is killed: the connection is left.
        attach; D=$(daemon); H=$(pgrep -P $D); kill -9 $H $D; gone $D
        (dd if=/dev/zero of=$L bs=1M count=4 conv=notrunc,fsync status=none || true) 2>/dev/null &
        W=$!
        sleep 1; timeout 60 $O blocks detach image; wait $W
        attach; mkfs.ext4 -q $L; mount $L here; umount here; detach"#,
    );
}

/// `shut_server PROCESS`: shuts the daemon's end of the device's connection, its only stream that
/// does not listen.
const SHUT_SERVER: &str = r#"
shut_server() { python3 -c '
import ctypes, os, socket, sys
call = ctypes.CDLL(None).syscall
daemon = call(434, int(sys.argv[1]), 0)
count = 0
for number in os.listdir("/proc/%s/fd" % sys.argv[1]):
    copy = call(438, daemon, int(number), 0)
    if copy < 0 or not os.readlink("/proc/self/fd/%d" % copy).startswith("socket:"): continue
    found = socket.socket(fileno=copy)
    listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if (found.family, found.type) == (socket.AF_UNIX, socket.SOCK_STREAM) and not listens:
        found.shutdown(socket.SHUT_RDWR)
        count += 1
sys.exit(count == 0)
' $1; }
"#;

/// Before Linux 6.14 a signal to a program whose request the kernel sends can break it.
#[test]
fn a_daemon_whose_connection_broke_ends_for_the_next_one() {
    driver_devices::run(
        &DRIVER,
        &format!(
            r#"{SHUT_SERVER}
        attach --write-through; NAME=$L; D=$(daemon); kill -STOP $D
        dd if=written of=$L bs=4096 count=1 oflag=direct conv=notrunc status=none & W=$!
        sleep 0.5; shut_server $D; kill -CONT $D; gone $D
        dd if=written of=$L bs=4096 count=1 seek=1 skip=1 oflag=direct conv=notrunc status=none &
        X=$!
        sleep 0.5; kill -0 $W $X; attach --write-through; [ $L = $NAME ]; wait $W; wait $X
        dd if=$L bs=4096 count=2 iflag=direct status=none | cmp -n 8192 - written; detach
        # A device that does not wait fails its requests; in the foreground the status says so.
        $O blocks attach -f --via nbd image >path 2>said & A=$!
        for i in $(seq 600); do [ -s path ] && break; sleep 0.1; done; L=$(cat path); D=$(daemon)
        [ $D = $A ]
        shut_server $D; refuses wait $A; grep -q "connection of $L broke" said
        attach; dd if=$L bs=4096 count=2 iflag=direct status=none | cmp -n 8192 - written; detach"#
        ),
    );
}

/// The last user keeps the number, and the kernel gives the device no other connection.
#[test]
fn a_disconnected_device_that_is_open_is_called_so() {
    driver_devices::run(
        &DRIVER,
        r#"attach --write-through; D=$(daemon); kill -9 $D; gone $D; exec 9<$L
        disconnected() {
            tr '\n' ' ' <said | grep -q 'was disconnected and is still open.*Close it'
        }
        refuses timeout 60 $O blocks detach image 2>said; disconnected
        refuses timeout 60 $O blocks attach --via nbd --write-through image 2>said; disconnected
        refuses timeout 60 $O blocks detach image 2>said; disconnected
        exec 9<&-; attach; detach"#,
    );
}
