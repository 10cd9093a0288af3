#!/bin/bash
# What an emulated machine of test-kernels.sh runs as its first process: the tests, and its own end.
# Its root is the host's, read-only.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
ln -s /proc/self/fd /dev/fd
mount -t securityfs none /sys/kernel/security
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
for place in /tmp /run /var/tmp /dev/shm /mnt; do mount -t tmpfs -o mode=1777 none $place; done
ip link set lo up
exec </dev/null >/dev/console 2>&1
cd /tmp
uname -r
echo "vm.overcommit_memory=$(cat /proc/sys/vm/overcommit_memory)"
# Tests of labels and of a ring pass where there is neither.
okeanos=$(dirname "$(dirname "$1")")/okeanos
"$okeanos" doctor --json >/tmp/doctor
if ! grep -q selinux /sys/kernel/security/lsm || ! grep -q '"io_uring": true' /tmp/doctor; then
    echo "this machine has no SELinux, or no io_uring"
    echo o >/proc/sysrq-trigger
    sleep 60
fi
# An emulated machine is slow.
PATIENCE=500 OKEANOS_IO=auto "$1" --color never --test-threads 2 "${@:2}"
echo "the tests have ended: $?"
echo o >/proc/sysrq-trigger
sleep 60
