//! Tests of what users meet in their first minutes and every day: refusals that help, readable
//! mount tables, reports of deaths.

use crate::rig::Rig;

#[test]
fn mkfs_gives_the_root_directory_to_its_maker() {
    Rig::new().run(
        r#"chmod 777 .; cp $O program; chmod 755 program
           as_nobody ./program mkfs mine 32M -- -q; debugfs -R 'stat /' mine 2>/dev/null >printed
           grep -q 'User: 65534 *Group: 65534' printed
           as_nobody ./program mkfs also 32M -- -q -E lazy_itable_init=0
           debugfs -R 'stat /' also 2>/dev/null >printed
           grep -q 'User: 65534 *Group: 65534' printed
           as_nobody ./program mkfs given 32M -- -q -E root_owner=12:34
           debugfs -R 'stat /' given 2>/dev/null >printed; grep -q 'User: *12 *Group: *34' printed
           $O mkfs root 32M -- -q; debugfs -R 'stat /' root 2>/dev/null >printed
           grep -q 'User: *0 *Group: *0' printed"#,
    );
}

#[test]
fn mkfs_names_what_is_there_and_overwrites_it_only_when_forced() {
    Rig::new().run(
        r#"$O mkfs image 32M -- -q -L mail; before=$(sha256sum <image)
           refuses $O mkfs image 2>printed </dev/null; grep -q 'type ext4 (label "mail")' printed
           grep -q -- '--force' printed
           [ "$before" = "$(sha256sum <image)" ]
           $O mkfs --force image -- -q; [ "$before" != "$(sha256sum <image)" ]
           # No file system at all, but not nothing either.
           truncate -s 32M disk; chmod 600 disk; mkswap disk >made 2>&1
           refuses $O mkfs disk 2>printed; grep -q 'hold data of type swap already' printed
           truncate -s 32M empty; $O mkfs empty -- -q
           truncate -s 32M log; mke2fs -q -O journal_dev log
           refuses $O mkfs --journal-device log new 32M 2>printed; grep -q "log appears" printed
           [ ! -e new ]; refuses $O mkfs --journal-size 1536K new 32M 2>printed
           grep -q '1M or 2M' printed; [ ! -e new ]
           refuses $O mkfs . 32M 2>printed; grep -q 'is a directory' printed
           refuses $O mkfs new 100 2>printed; grep -q 'no volume fits' printed; [ ! -e new ]
           echo text >text; refuses $O mount text $M 2>printed
           grep -q 'text is too small' printed"#,
    );
}

#[test]
fn mounts_are_listed_with_mode_and_health_and_dead_daemons_stand_out() {
    Rig::new().run(
        r#"$O list >printed; grep -q 'No okeanos volume' printed || refuses grep -q "$M" printed
           $O mkfs image 64M -- -q >made; $O mkfs second 64M -- -q >made; mkdir other
           $O mount -o data=wasteless,transport=classic image $M; $O mount -o ro,noloop second other
           $O list >printed
           grep "^$M" printed | grep image | grep -w wasteless | grep -w classic | grep -w ok |
               grep -q 'data=wasteless,transport=classic$'
           grep "$PWD/other" printed | grep second | grep -qw read-only; $O umount other
           $O umount $M; settle image
           serve data=wasteless,noloop image; echo kept >$M/file; sync $M/file; mkdir $M/below
           kill_daemon
           $O list >printed; grep "^$M" printed | grep -q 'daemon died'
           for command in "stats $M" "stats $M/below/deep" "stats --watch image" "advise $M" \
               "checkpoint $M" "recover image" "recover $M" "mount second $M" \
               "mount -o remount,ro image $M" "inspect super $M" "inspect inode 2 $M/file" \
               "fingerprint $M/file" "fingerprint --destroy image" \
               "nbd --socket $M/s image"; do
               refuses $O $command 2>printed; grep -q 'has died' printed
               grep -q "okeanos umount $M" printed; grep -q "okeanos mount .*image $M" printed
           done; [ $(grep -c " $M " /proc/self/mountinfo) = 1 ]
           for command in "bench stress --operations 9 $M" "bench postmark --transactions 9 $M" \
               "bench verify --acknowledged $M/file $M"; do
               refuses $LAB $command 2>printed; grep -q 'has died' printed
               grep -q "okeanos umount $M" printed; grep -q "okeanos mount .*image $M" printed
           done
           $O umount $M 2>printed; grep -q 'had died' printed
           grep -q "okeanos mount .*image $M" printed
           $O recover image >printed; $O mount -o noloop image $M; grep -q kept $M/file
           $O umount $M; clean image"#,
    );
}

#[test]
fn a_dead_host_and_a_dead_drive_stand_out_with_their_next_step() {
    Rig::new().run(
        r#"mkdir store host drive; truncate -s 64M journal
           HOST="host mount --store dir:$PWD/store --journal"
           dies() { local pid=$($O list --json | python3 -c 'import json, sys
print(*[found["process"] for found in json.load(sys.stdin) if found["directory"] == sys.argv[1]])' $PWD/$1)
               kill -9 $pid; for i in $(seq 100); do [ -d /proc/$pid ] || break; sleep 0.1; done; }
           $O $HOST journal --format host; echo kept >host/file; sync host/file; dies host
           for command in "stats host" "inspect super host/file"; do
               refuses $O $command 2>printed; grep -q 'has died' printed
               grep -q "okeanos $HOST JOURNAL $PWD/host" printed
           done
           $O umount host 2>printed; grep -q "okeanos $HOST JOURNAL $PWD/host" printed
           unmounted host
           $O $HOST journal host; grep -q kept host/file
           $O stats --prometheus host >printed
           grep -q '^okeanos_host_destaged_bytes_total{' printed
           $O stats host >printed
           head -1 printed | grep -q "dir:.* on $PWD/host, [a-z_]* transport"
           grep -q '^destaged bytes .*B$' printed
           refuses $O checkpoint host 2>printed; grep -q 'destage=' printed
           refuses $O mount -o remount,ro host 2>printed; grep -q 'cannot be changed' printed
           refuses $O advise host 2>printed; grep -q 'no mode' printed
           refuses $O host recover --store dir:$PWD/store --journal journal 2>printed
           grep -q "is the journal of $PWD/host" printed; $O umount host
           $LAB disk serve --model nvme-ssd --size 64M drive; dies drive
           for command in "$O stats drive" "$LAB disk serve --model nvme-ssd --size 64M drive"; do
               refuses $command 2>printed; grep -q 'has died' printed
               grep -q 'okeanos-lab disk serve' printed; refuses grep -q 'is safe' printed
           done
           $O umount drive 2>printed; unmounted drive"#,
    );
}

#[test]
fn an_image_stands_for_its_mount_and_what_is_in_the_way_is_named() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; refuses $O mount image 2>printed
           grep -q 'okeanos mount image DIR' printed
           refuses $O mount image nowhere 2>printed; grep -q 'mkdir -p nowhere' printed
           $O mount image $M; $O stats image | head -1 | grep -q "on $M"
           for command in "mkfs --force image" "mount image $M" "recover image"; do
               refuses $O $command 2>printed; grep -q "is mounted on $M" printed
               grep -q "okeanos umount $M" printed
           done
           # As with mount(8), the directory is enough.
           $O mount -o remount,ro $M; grep " $M .* ro," /proc/mounts; $O umount image; unmounted $M
           settle image
           refuses $O umount image 2>printed; grep -q 'okeanos list' printed; clean image
           serve noloop image; kill_daemon
           for command in "$O mkfs --force image" "$LAB bench streams $M"; do
               refuses $command 2>printed; grep -q 'has died' printed
               grep -q "okeanos umount $M" printed
           done
           $O umount image 2>printed"#,
    );
}

#[test]
fn an_ordinary_user_finds_his_mount_from_every_login() {
    Rig::new().run(
        r#"mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; chmod 777 .; cp $O program
           chmod 755 program; O=$PWD/program
           mkdir own other theirs; chown 65534:65534 own other; chmod 700 theirs
           as_nobody $O mkfs image 64M -- -q
           debugfs -R 'stat lost+found' image 2>/dev/null >printed
           grep -q 'User: 65534 *Group: 65534' printed; clean image
           # Another's directory for sockets, as su(1) leaves it, is passed over.
           XDG_RUNTIME_DIR=$PWD/theirs as_nobody $O mount image own; as_nobody $O list >printed
           grep "^$PWD/own" printed | grep -qw ok
           as_nobody $O check own; as_nobody du -s own
           for at in own other; do
               refuses as_nobody $O mount image $at 2>printed
               grep -q "image is in use: it is mounted on $PWD/own" printed
           done
           mkdir login; chown 65534:65534 login
           XDG_RUNTIME_DIR=$PWD/login as_nobody $O stats own | head -1 | grep -q "$PWD/own"
           XDG_RUNTIME_DIR=$PWD/login as_nobody $O umount own; clean image"#,
    );
}

/// Acts as systemd would on the unit.
#[test]
fn the_unit_mounts_again_after_the_daemon_died() {
    let rig = Rig::new();
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systemd/okeanos@.service");
    std::fs::copy(unit, rig.path("unit")).unwrap();
    rig.run(
        r#"mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
           H=; trap '[ -z "$H" ] || kill $H' EXIT
           order() {
               sed -n "s/^$1=-\(.*\)/\1 || true/p; t; s/^$1=//p" unit |
                   sed "s|/usr/bin/okeanos|$O|; s|%f|$M|g; s|[$][$]|$|g; s|\${OPTIONS}|'$OPTIONS'|; s|\${SOURCE}|$PWD/image|"
           }
           start() {
               eval "$(order ExecStartPre)"; eval "exec $(order ExecStart)" & DAEMON=$!
               for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
           }
           grep -q '^Restart=on-failure' unit; $O mkfs image 64M -- -q; OPTIONS=data=wasteless
           start
           echo kept >$M/file; sync $M/file; sleep 1000 <$M/file >sleeps 2>&1 & H=$!; sleep 0.3
           kill_daemon; $O list | grep -q 'daemon died'
           # What ExecStopPost does, a start does, too, while a program has a file of the dead mount
           # open.
           start; for i in $(seq 600); do [ -e $M/file ] && break; sleep 0.1; done
           grep -q kept $M/file; kill_daemon; kill $H; wait $H || true; H=
           # Without options, too.
           eval "$(order ExecStopPost)"; OPTIONS=; start; grep -q kept $M/file
           # To an end that was asked for there is nothing to add.
           kill -TERM $DAEMON; wait $DAEMON; eval "$(order ExecStopPost)"; settle image
           # A second start fails, and leaves what somebody else has mounted.
           $O mount image $M; touch $M/alive; refuses eval "$(order ExecStart)" 2>printed
           eval "$(order ExecStopPost)"
           [ -e $M/alive ]; $O umount $M; settle image; clean image
           # Before it a device is waited for; an image is not.
           eval "$(order ExecStartPre)""#,
    );
}

/// Acts as systemd would on the unit of a host.
#[test]
fn the_unit_of_a_host_recovers_what_was_synced() {
    let rig = Rig::new();
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../systemd/okeanos-host@.service");
    std::fs::copy(unit, rig.path("unit")).unwrap();
    rig.run(
        r#"order() {
               sed -n "s/^$1=-\(.*\)/\1 || true/p; t; s/^$1=//p" unit |
                   sed "s|/usr/bin/okeanos|$O|; s|%f|$M|g; s|[$][$]|$|g; s|\${OPTIONS}|'$OPTIONS'|; s|\${STORE}|$STORE|; s|\${JOURNAL}|$JOURNAL|"
           }
           start() {
               eval "$(order ExecStartPre)"; eval "exec $(order ExecStart)" & DAEMON=$!
               for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
           }
           grep -q '^Restart=on-failure' unit; mkdir store; truncate -s 64M journal
           STORE=dir:$PWD/store JOURNAL=$PWD/journal OPTIONS= ARGUMENTS=; start
           echo kept >$M/file; sync $M/file; [ ! -s store/file ]; kill_daemon
           $O list | grep -q 'daemon died'
           eval "$(order ExecStopPost)"; unmounted $M; start; grep -q kept store/file
           # What ExecStopPost does, a start does, too.
           echo more >>$M/file; sync $M/file; kill_daemon; OPTIONS=destage=1s; start
           for i in $(seq 600); do [ -e $M/file ] && break; sleep 0.1; done; grep -q more $M/file
           # A second start fails, and leaves what is mounted.
           refuses eval "$(order ExecStart)" 2>printed; eval "$(order ExecStopPost)"
           grep -q more $M/file
           kill -TERM $DAEMON; wait $DAEMON; eval "$(order ExecStopPost)"; unmounted $M
           grep -q more store/file
           # The device of a journal is waited for, though not for ever.
           L=$(losetup --find --show journal); JOURNAL=/dev/okeanos-test-$$
           trap 'rm -f $JOURNAL; losetup -d $L' EXIT
           (sleep 1; ln -s $L $JOURNAL) & start; grep -q more $M/file; kill -TERM $DAEMON
           wait $DAEMON
           rm $JOURNAL; sed -i 's/seq 90/seq 1/' unit
           refuses eval "$(order ExecStartPre | head -1)" 2>printed
           grep -q "$JOURNAL does not appear" printed"#,
    );
}

#[test]
fn umount_names_bind_mounts_for_which_it_waits() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mount image $M; mkdir $M/in bound; mount --bind $M/in bound
           $O umount $M 2>printed & U=$!
           for i in $(seq 100); do grep -q bound printed && break; sleep 0.05; done
           grep -q "is mounted on $PWD/bound, too" printed; [ -d /proc/$U ]; umount bound; wait $U
           settle image; clean image
           $O mount image $M; $O umount $M 2>printed; quiet printed; settle image"#,
    );
}

#[test]
fn umount_names_others_and_not_itself() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mount image $M; mkdir $M/in
           (cd $M/in; exec sleep 1000) & S=$!
           for i in $(seq 100); do [ "$(readlink /proc/$S/cwd)" = $M/in ] && break; sleep 0.05; done
           refuses $O umount $M 2>printed; grep -q "sleep ($S)" printed
           refuses grep -q 'okeanos (' printed
           kill $S; wait $S || true
           # Called from inside, it does not stand in its own way.
           bash -c "cd $M/in; exec $O umount ../../mount"; unmounted $M; settle image
           clean image"#,
    );
}

#[test]
fn rates_are_one_line_an_interval() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mount -o data=wasteless image $M
           (for i in $(seq 200); do
               echo $i | dd of=$M/log oflag=sync,append conv=notrunc status=none
           done) &
           W=$!
           $O stats --watch=0.5 --count 3 $M >printed; wait $W; [ $(wc -l <printed) = 4 ]
           head -1 printed | grep -q 'syncs/s.*p99.*requests/s'
           # At least one of them saw a sync.
           awk 'NR > 1 && $1 > 0 { seen = 1 } END { exit !seen }' printed
           # As one types it first.
           $O stats --watch --count 1 $M >printed; [ $(wc -l <printed) = 2 ]
           $O stats --watch=200ms --count 1 $M >printed
           refuses $O stats --watch 10 $M 2>printed; grep -q 'write --watch=10' printed
           refuses $O stats --watch=0 $M 2>printed
           refuses $O stats --watch --prometheus $M 2>printed
           $O stats $M >printed; grep -q '^write ' printed; $O umount $M; settle image"#,
    );
}

#[test]
fn metrics_are_those_of_prometheus_and_readable_by_users_of_the_volume() {
    Rig::new().run(
        r#"chmod 755 .; cp $O program; chmod 755 program; $O mkfs image 64M -- -q
           $O mount -o data=wasteless,allow_other image $M; echo text >$M/file; sync $M/file
           as_nobody ./program stats --prometheus $M >printed
           as_nobody ./program list >listed; grep "^$M" listed | grep -qw wasteless
           # A user who may only query cannot change anything.
           refuses as_nobody ./program umount $M 2>refused
           cat >check.py <<'END'
import re, sys
from prometheus_client.parser import text_string_to_metric_families
text = open("printed").read()
families = list(text_string_to_metric_families(text))
names = {family.name for family in families}
assert {"okeanos_info", "okeanos_failed", "okeanos_read_only", "okeanos_commits", "okeanos_sync_duration_seconds"} <= names, names
for family in families:
    assert family.documentation and family.type in ("counter", "gauge", "histogram"), family
    assert family.samples, family
    for sample in family.samples:
        assert sample.labels["volume"] == sys.argv[1], sample
        assert family.type != "counter" or sample.name.endswith("_total"), sample
    assert not re.search("nanoseconds|microseconds|milliseconds", family.name)
[syncs] = [family for family in families if family.type == "histogram"]
buckets = [sample.value for sample in syncs.samples if sample.name.endswith("_bucket")]
[count] = [sample.value for sample in syncs.samples if sample.name.endswith("_count")]
assert buckets == sorted(buckets) and buckets[-1] == count >= 1, buckets
END
           # Debian's own: python3-prometheus-client.
           /usr/bin/python3 check.py $M
           if command -v promtool >/dev/null; then promtool check metrics <printed; fi
           $O umount $M; $O mount image $M
           refuses as_nobody ./program stats $M 2>printed; $O umount $M; settle image"#,
    );
}

#[test]
fn logs_have_levels_and_a_file_and_verbose_shows_requests() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mount -o log_file=log,log_level=debug image $M; mkdir $M/seen
           $O umount $M; settle image
           grep -q 'info: .*image is mounted on' log
           grep -q 'debug: request [0-9]*: mkdir, node 1, process [0-9]*: done' log
           grep -q 'info: .*everything is home' log
           grep -qE '^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} [+-][0-9]{4} okeanos' log
           $O mount -o log_file=quiet,log_level=error image $M; $O umount $M; settle image
           [ ! -s quiet ]
           $O mount -f -v image $M 2>printed & D=$!
           for i in $(seq 600); do mountpoint -q $M && break; sleep 0.1; done
           rmdir $M/seen; $O umount $M; wait $D; grep -q 'request .*rmdir' printed
           refuses $O mount -o log_level=loud image $M 2>printed
           grep -q 'error, warning, info or debug' printed"#,
    );
}

#[test]
fn check_finds_damage_and_lying_bitmaps_and_exits_as_fsck_does() {
    Rig::new().run(
        r#"code() { local status=0; "$@" >printed 2>&1 || status=$?; echo $status; }
           for options in '' '-b 1024' '-O ^metadata_csum,uninit_bg' \
               '-O ^extents,^metadata_csum,^64bit'; do
               rm -f image; $O mkfs image 64M -- -q $options; $O mount image $M; mkdir $M/many
               for i in $(seq 400); do echo $i >$M/many/with-a-rather-long-name-$i; done
               head -c 3M /dev/zero >$M/large
               for i in $(seq 1 2 60); do
                   printf x | dd of=$M/holes bs=8192 seek=$i status=none
               done
               setfattr -n user.big -v $(head -c 600 /dev/zero | tr '\0' v) $M/large
               [ $(code $O check $M) = 0 ]; grep -q 'nothing is wrong' printed; $O umount $M
               settle image; clean image
               [ $(code $O check image) = 0 ] || { cat printed >&2; exit 1; }
               grep -q 'nothing is wrong' printed
           done
           rm image; $O mkfs image 64M -- -q; $O mount image $M; head -c 3M /dev/zero >$M/large
           $O umount $M; settle image
           copy image lies; in_use=$(debugfs -R 'blocks large' lies 2>fs | cut -d' ' -f1)
           free=$(debugfs -R 'ffb 1' lies 2>fs | grep -o '[0-9]* *$')
           debugfs -w -R "freeb $in_use 2" lies 2>fs; debugfs -w -R "setb $free" lies 2>fs
           [ $(code $O check lies) = 4 ]; grep -q '2 blocks are in use and marked free' printed
           grep -q '1 blocks are marked as in use' printed
           copy image damaged
           at=$(debugfs -R 'imap large' damaged 2>/dev/null |
               sed -n 's/.*block \([0-9]*\), offset \(0x[0-9a-f]*\).*/\1 \2/p')
           set -- $at
           printf '\377' | dd of=damaged bs=1 seek=$(($1 * 1024 + $2 + 20)) conv=notrunc status=none
           [ $(code $O check damaged) = 4 ]; grep -q 'inode' printed; grep -q 'e2fsck' printed
           [ $(code $O check /dev/null) = 8 ]; [ $(code $O check nowhere) = 8 ]
           refuses grep -q 'is mounted' printed; $O mount image $M; [ $(code $O check image) = 8 ]
           grep -q "okeanos check $M" printed; $O umount $M; settle image
           [ $(code $O check) = 16 ]; [ $(code $O check --sorely image) = 16 ]
           [ $(code $O check --help) = 0 ]
           serve noloop image; echo x >$M/x; sync $M/x; kill_daemon; [ $(code $O check image) = 8 ]
           grep -q 'has died' printed; $O umount $M
           [ $(code $O check image) = 8 ]; grep -q 'okeanos recover' printed
           $O recover image >printed; [ $(code $O check image) = 0 ]"#,
    );
}

#[test]
fn check_never_calls_sound_what_a_mount_refuses() {
    Rig::new().run(
        r#"code() { local status=0; "$@" >printed 2>&1 || status=$?; echo $status; }
           $O mkfs image 64M -- -q -b 4096 -O ^metadata_csum; $O mount image $M; mkdir $M/below
           echo x >$M/a; ln $M/a $M/b; echo y >$M/lonely; : >$M/twin-a; : >$M/twin-b
           for i in $(seq 400); do : >$M/below/with-a-rather-long-name-$i; done; $O umount $M
           settle image; clean image
           # Each is found by our own code, and by e2fsck.
           finds() {
               [ $(code $O check --without-e2fsck damaged) = 4 ] && grep -q "$1" printed &&
                   grep -q '^Not looked at' printed || { cat printed >&2; exit 1; }
               [ $(code $O check damaged) -ge 4 ] && grep -q "$1" printed &&
                   grep -q '^e2fsck: ' printed || { cat printed >&2; exit 1; }
           }
           breaks() { copy image damaged; debugfs -w -R "$1" damaged 2>fs >fs; finds "$2"; }
           breaks 'clri <2>' 'no mount can open it.*root directory'
           breaks 'clri /a' 'inode .* is free'
           breaks 'sif /a links_count 7' '2 links lead to it, it says 7'
           breaks 'unlink /lonely' 'no name leads to it'; copy image damaged
           LC_ALL=C sed -i 's/twin-b/twin-a/' damaged; finds 'stands there twice'
           breaks 'sif /a blocks 80' 'it says 80'
           breaks 'sif /a mode 0040755' 'it says Regular'
           breaks 'sif /below size 4097' 'a directory cannot have 4097 bytes'
           journal=$(debugfs -R 'bmap <8> 0' image 2>fs)
           copy image damaged
           dd if=/dev/zero of=damaged bs=4096 count=1 seek=$journal conv=notrunc status=none
           finds 'no mount can open it'; refuses $O mount damaged $M 2>fs
           for dry in --dry-run ''; do
               [ $(code $O recover $dry damaged) = 1 ]; grep -q 'journal cannot be used' printed
               refuses grep -q 'is empty' printed
           done
           $O mkfs --journal-device log --journal-size 8M ext 64M -- -q >made
           [ $(code $O check ext) = 8 ]; grep -q -- --journal-device printed
           refuses grep -q e2fsck printed
           [ $(code $O check --journal-device log ext) = 0 ]
           $O check --json image >printed; grep -q '"exit_status": 0' printed
           grep -q '"verdict": "clean"' printed
           [ $(code $O check --json damaged) -ge 4 ]; grep -q '"found_by": "e2fsck"' printed
           grep -q '"found_by": "okeanos"' printed
           mount --bind /dev/null $(command -v e2fsck); [ $(code $O check image) = 0 ]
           grep -q '^Not looked at: .*e2fsck is not installed' printed"#,
    );
}

#[test]
fn inspect_takes_the_directory_of_a_mount() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mount image $M; mkdir $M/below
           for what in super groups 'journal' 'inode 2' 'dir /'; do
               $O inspect $what $M >printed; $O inspect $what image >also; cmp printed also
           done
           refuses $O inspect logs $M 2>printed; refuses grep -q 'too small' printed
           refuses $O inspect super $M/below 2>printed; grep -q "mounted: $M" printed
           refuses $O inspect super . 2>printed; grep -q 'is a directory' printed; $O umount $M
           settle image
           $O mount -o noloop image $M; $O inspect super $M >printed; grep -q ^uuid printed
           $O umount $M; settle image"#,
    );
}

#[test]
fn advice_follows_from_what_was_written() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q; $O mount -o data=ordered image $M
           refuses grep -q 'Advice' <<<"$($O advise $M)"
           $LAB bench streams --writers 4 --size 128 --count 400 $M >printed; $O advise $M >printed
           grep -q 'Advice: mount -o data=wasteless' printed
           $O advise --json $M | grep -q '"journal_bytes"'; $O umount $M; settle image"#,
    );
}

#[test]
fn pages_and_completions_are_without_fault_and_help_fits_the_terminal() {
    Rig::new().run(
        r#"$O man pages; for page in pages/*; do groff -ww -man -Tutf8 -z $page 2>>warned; done
           [ ! -s warned ] || { cat warned >&2; exit 1; }
           grep -q '^.SH MOUNT.OPTIONS\|^.SH "MOUNT OPTIONS"' pages/okeanos-mount.8
           groff -man -Tutf8 pages/okeanos-mkfs.8 | sed 's/\x1b\[[0-9;]*m//g;s/.\x08//g' >page
           for page in okeanos-mount.8 okeanos-blocks-attach.8 mount.fuse.okeanos.8; do
               grep -q 'log_gap=auto' pages/$page
           done
           grep -q 'okeanos mkfs .*IMAGE' page; grep -q '^EXIT STATUS' page
           [ -s pages/mount.fuse.okeanos.8 ]
           for shell in bash zsh fish; do
               $O completions $shell >script.$shell; grep -q advise script.$shell
               grep -q 'log_gap=auto' script.$shell; grep -q 'reconnect=never' script.$shell
           done
           bash -n script.bash
           for width in 60 80 100; do
               for command in "" list mount mkfs umount recover check advise list stats \
                   fingerprint nbd powercut "host mount" "blocks attach"; do
                   COLUMNS=$width $O $command --help >help
                   # A word, or a line that is to be typed, may be wider.
                   awk -v w=$width 'length > w && !/^ *[^ ]+$/ && !/okeanos|--|<.*>|\// { print; bad = 1 } END { exit bad }' help
               done
           done
           for moved in bench sim reproduce disk "fingerprint --model samsung-16" \
               "nbd --socket s --model samsung-16"; do
               status=0; $O $moved 2>printed || status=$?; [ $status = 2 ]
               grep -q 'is a command of okeanos-lab' printed
           done
           $O --version | grep -q '^okeanos [0-9]'; refuses $O mkfs small 1XB 2>printed
           grep -q '1GB for' printed
           $O mkfs decimal 64MB -- -q; [ $(stat -c %s decimal) = 64000000 ]
           refuses $O mount -o cache=1 decimal $M 2>printed; grep -q 'at least 1M' printed"#,
    );
}

#[test]
fn a_service_manager_is_notified_when_the_volume_is_mounted() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q
           python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind("notify"); s.settimeout(120); open("bound", "w"); print(s.recv(100).decode())' >heard &
           P=$!
           for i in $(seq 100); do [ -e bound ] && break; sleep 0.1; done
           NOTIFY_SOCKET=$PWD/notify $O mount -f image $M & D=$!; wait $P; grep -q READY=1 heard
           mountpoint -q $M; $O umount $M; wait $D"#,
    );
}

#[test]
fn inspect_logs_takes_the_directory_of_a_mount() {
    Rig::new().run(
        r#"$O mkfs --scattered-logs=log-size=1M,group-size=8M image 64M -- -q
           $O mount -o log=scattered image $M
           for i in $(seq 20); do echo $i >$M/file$i; sync $M/file$i; done
           $O inspect logs $M >printed; $O inspect logs image >also; cmp printed also
           [ -s printed ]
           $O umount $M; settle image; clean image"#,
    );
}
