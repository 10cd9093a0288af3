#!/usr/bin/env python3
"""What the metadata server's processor has to do for each kind of message, on a cluster of scripts/ceph-cluster.sh.

    scripts/measure-metadata-server.py CLUSTER [FILES] [ROUNDS]

One client of libcephfs makes FILES files with 16 threads, writes to each, tells the server all their attributes at once, removes
them, and asks how many names are left. Printed are microseconds of the server's threads for each message, the median of the rounds,
and how many requests and journal entries each made. Processor time, so that other programs count for little.
"""
import ctypes as c, json, os, statistics, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor

CLUSTER = os.path.realpath(sys.argv[1])
FILES, ROUNDS = (int(word) for word in (sys.argv[2:] + ["1000", "5"][len(sys.argv) - 2:])[:2])
CONF, BASIC = f"{CLUSTER}/ceph.conf", 0x7FF
SERVER = open(f"{CLUSTER}/daemons/mds.pid").read().split()[0]
library = c.CDLL("libcephfs.so.2")
library.ceph_mount_perms.restype = c.c_void_p


def check(answer):
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer


class Client:
    def __init__(self):
        self.mount, self.root = c.c_void_p(), c.c_void_p()
        check(library.ceph_create(c.byref(self.mount), b"admin"))
        check(library.ceph_conf_read_file(self.mount, CONF.encode()))
        # Nothing goes by itself.
        for name in (b"client_oc_max_dirty_age", b"client_caps_release_delay"):
            check(library.ceph_conf_set(self.mount, name, b"86400"))
        check(library.ceph_conf_set(self.mount, b"client_permissions", b"false"))
        check(library.ceph_mount(self.mount, b"/"))
        self.user = c.c_void_p(library.ceph_mount_perms(self.mount))
        check(library.ceph_ll_lookup_root(self.mount, c.byref(self.root)))

    def make(self, name):
        file, handle, statx = c.c_void_p(), c.c_void_p(), c.create_string_buffer(136)
        mode, device = c.c_uint16(0o100644), c.c_uint64(0)
        check(library.ceph_ll_mknod(self.mount, self.root, name, mode, device, c.byref(file), statx, BASIC, 0, self.user))
        check(library.ceph_ll_open(self.mount, file, os.O_RDWR, c.byref(handle), self.user))
        return file, handle

    def write_content(self, handle):
        check(library.ceph_ll_write(self.mount, handle, c.c_int64(0), c.c_uint64(1000), bytes(1000)))
        check(library.ceph_ll_fsync(self.mount, handle, 1))

    def tell_attributes(self):
        check(library.ceph_sync_fs(self.mount))

    def remove(self, name):
        check(library.ceph_ll_unlink(self.mount, self.root, name, self.user))

    def ask(self, file):
        check(library.ceph_ll_getattr(self.mount, file, c.create_string_buffer(136), BASIC, 0, self.user))

    def close(self, file, handle):
        library.ceph_ll_close(self.mount, handle)
        library.ceph_ll_put(self.mount, file)


def processor_us():
    tasks = f"/proc/{SERVER}/task"
    return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks)) / 1000


def counts():
    socket = next(f"{CLUSTER}/run/{name}" for name in os.listdir(f"{CLUSTER}/run") if name.startswith("mds."))
    told = json.loads(subprocess.check_output(["ceph", "--admin-daemon", socket, "perf", "dump"]))
    server = told["mds_server"]["handle_client_request"], told["mds"]["handle_client_caps_dirty"], told["mds_log"]["evadd"]
    return server


def main():
    client, results = Client(), {}
    # What is asked before the server's journal is written it has not told yet: all at once.
    with ThreadPoolExecutor(16) as threads, ThreadPoolExecutor(256) as askers:
        def measured(what, work):
            # What came before is over, and what comes after is counted.
            time.sleep(1)
            counted, before = counts(), processor_us()
            work()
            time.sleep(1)
            used, after = processor_us() - before, counts()
            results.setdefault(what, []).append((used / FILES, [(b - a) / FILES for a, b in zip(counted, after)]))

        for number in range(ROUNDS):
            names = [f"measured-{os.getpid()}-{number}-{file}".encode() for file in range(FILES)]
            files = []
            measured("make", lambda: files.extend(threads.map(client.make, names)))
            list(threads.map(lambda one: client.write_content(one[1]), files))
            measured("attributes, all at once", client.tell_attributes)
            measured("remove", lambda: list(threads.map(client.remove, names)))
            for file in files:
                client.close(*file)
            files = list(threads.map(client.make, names))
            def remove_and_ask():
                list(threads.map(client.remove, names))
                list(askers.map(client.ask, [file for file, _ in files]))
            measured("remove, and the question", remove_and_ask)
            for file in files:
                client.close(*file)
    print(f"{'for each':26} {'us':>6} {'from':>6} {'to':>6}  requests, changed capabilities, journal entries")
    for what, rounds in results.items():
        times = [used for used, _ in rounds]
        each = ", ".join(f"{statistics.median(count):.2f}" for count in zip(*(counted for _, counted in rounds)))
        print(f"{what:26} {statistics.median(times):6.0f} {min(times):6.0f} {max(times):6.0f}  {each}")
    # The library may wait for servers at its end.
    sys.stdout.flush()
    os._exit(0)


main()
