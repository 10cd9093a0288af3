#!/usr/bin/env python3
"""What the metadata server's processor has to do for each kind of message, on a cluster of scripts/ceph-cluster.sh.

    scripts/measure-metadata-server.py CLUSTER [FILES] [ROUNDS]

Clients of libcephfs send FILES messages of each kind from 16 threads, and nobody else anything. Printed are microseconds of all the
server's threads for each message, the median of the rounds, and how many requests, messages about capabilities, and journal
entries each made. Processor time, so that other programs count for little.
"""
import ctypes as c, json, os, statistics, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor

CLUSTER = os.path.realpath(sys.argv[1])
FILES, ROUNDS = (int(word) for word in (sys.argv[2:] + ["1000", "5"][len(sys.argv) - 2:])[:2])
CONF, BASIC = f"{CLUSTER}/ceph.conf", 0x7FF
PUNCH_HOLE_KEEP_SIZE = 3
SERVER = open(f"{CLUSTER}/daemons/mds.pid").read().split()[0]
# What the library does behind a call's answer: it looks once a second.
BEHIND_S = 1.5
# So few that the server's journal is not written before the last request. What it has sent is no
# question.
ASKED_AT_ONCE = 100
library = c.CDLL("libcephfs.so.2")
library.ceph_mount_perms.restype = c.c_void_p


def check(answer):
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer


class Client:
    def __init__(self, keeps):
        """With `keeps` nothing goes by itself, as with a host; else what a file was opened for is given back with its close."""
        self.mount, self.root = c.c_void_p(), c.c_void_p()
        check(library.ceph_create(c.byref(self.mount), b"admin"))
        check(library.ceph_conf_read_file(self.mount, CONF.encode()))
        hold = b"86400" if keeps else b"0"
        for name in (b"client_oc_max_dirty_age", b"client_caps_release_delay"):
            check(library.ceph_conf_set(self.mount, name, hold))
        check(library.ceph_conf_set(self.mount, b"client_permissions", b"false"))
        check(library.ceph_mount(self.mount, b"/"))
        self.user = c.c_void_p(library.ceph_mount_perms(self.mount))
        check(library.ceph_ll_lookup_root(self.mount, c.byref(self.root)))

    def make(self, name):
        file, statx = c.c_void_p(), c.create_string_buffer(136)
        mode, device = c.c_uint16(0o100644), c.c_uint64(0)
        check(library.ceph_ll_mknod(self.mount, self.root, name, mode, device, c.byref(file), statx, BASIC, 0, self.user))
        return file, self.open(file)

    def look_up(self, name):
        file, statx = c.c_void_p(), c.create_string_buffer(136)
        check(library.ceph_ll_lookup(self.mount, self.root, name, c.byref(file), statx, BASIC, 0, self.user))
        return file

    def open(self, file):
        handle = c.c_void_p()
        check(library.ceph_ll_open(self.mount, file, os.O_RDWR, c.byref(handle), self.user))
        return handle

    def write(self, handle):
        check(library.ceph_ll_write(self.mount, handle, c.c_int64(0), c.c_uint64(1000), bytes(1000)))

    def sync(self, handle, content_alone):
        check(library.ceph_ll_fsync(self.mount, handle, content_alone))

    def write_content(self, handle):
        self.write(handle)
        self.sync(handle, 1)

    def tell_all_attributes(self):
        check(library.ceph_sync_fs(self.mount))

    def ask_who_is_known(self, handle):
        """The question of crates/ceph after a sync: for a lock that nobody has."""
        lock = c.create_string_buffer(32)
        lock[8:16] = (0).to_bytes(8, "little")
        lock[16:24] = (1).to_bytes(8, "little")
        check(library.ceph_ll_getlk(self.mount, handle, lock, c.c_uint64(0)))

    def remove(self, name):
        check(library.ceph_ll_unlink(self.mount, self.root, name, self.user))

    def ask_names_left(self, file):
        check(library.ceph_ll_getattr(self.mount, file, c.create_string_buffer(136), BASIC, 0, self.user))

    def discard(self, handle):
        """As crates/ceph does before the last close of a file without a name."""
        check(library.ceph_ll_fallocate(self.mount, handle, PUNCH_HOLE_KEEP_SIZE, c.c_int64(0), c.c_int64(1000)))
        check(library.ceph_ll_lazyio(self.mount, handle, 1))

    def close(self, file, handle):
        library.ceph_ll_close(self.mount, handle)
        library.ceph_ll_put(self.mount, file)

    def end(self):
        library.ceph_ll_put(self.mount, self.root)
        check(library.ceph_unmount(self.mount))


def processor_us():
    tasks = f"/proc/{SERVER}/task"
    return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks)) / 1000


def counts():
    socket = next(f"{CLUSTER}/run/{name}" for name in os.listdir(f"{CLUSTER}/run") if name.startswith("mds."))
    counters = json.loads(subprocess.check_output(["ceph", "--admin-daemon", socket, "perf", "dump"]))
    return counters["mds_server"]["handle_client_request"], counters["mds"]["handle_client_caps"], counters["mds_log"]["evadd"]


def main():
    here, there, results = Client(keeps=True), Client(keeps=False), {}
    with ThreadPoolExecutor(16) as threads, ThreadPoolExecutor(ASKED_AT_ONCE) as askers:
        def each(work, what):
            return list(threads.map(work, what))

        def measured(what, work):
            # What came before is over, and what comes after is counted.
            time.sleep(BEHIND_S)
            counted, before = counts(), processor_us()
            work()
            time.sleep(BEHIND_S)
            used, after = processor_us() - before, counts()
            results.setdefault(what, []).append((used / FILES, [(b - a) / FILES for a, b in zip(counted, after)]))

        def names_of(kind):
            return [f"{kind}-{os.getpid()}-{number}-{file}".encode() for file in range(FILES)]

        for number in range(ROUNDS):
            files, names = [], names_of("synced")
            measured("new file", lambda: files.extend(threads.map(here.make, names)))
            handles = [handle for _, handle in files]
            each(here.write_content, handles)
            measured("attributes", lambda: each(lambda handle: here.sync(handle, 0), handles))
            each(here.write_content, handles)
            measured("attributes, all at once", here.tell_all_attributes)
            measured("question of a sync", lambda: each(here.ask_who_is_known, handles))
            measured("remove", lambda: each(here.remove, names))
            for file in files:
                here.close(*file)

            names = names_of("dirty")
            files = each(here.make, names)
            each(lambda file: here.write(file[1]), files)
            def remove_and_ask():
                for some in range(0, FILES, ASKED_AT_ONCE):
                    each(here.remove, names[some:some + ASKED_AT_ONCE])
                    list(askers.map(lambda file: here.ask_names_left(file[0]), files[some:some + ASKED_AT_ONCE]))
                each(lambda file: here.discard(file[1]), files)
                each(lambda file: here.close(*file), files)
            measured("remove, names left, discard", remove_and_ask)

            names, maker = names_of("there"), Client(keeps=True)
            for file, handle in each(maker.make, names):
                maker.write_content(handle)
                maker.close(file, handle)
            maker.end()
            files, handles = [], []
            measured("look at a name", lambda: files.extend(threads.map(there.look_up, names)))
            measured("open", lambda: handles.extend(threads.map(there.open, files)))
            measured("give back", lambda: each(lambda file: there.close(*file), zip(files, handles)))
    print(f"{'for each':27} {'us':>6} {'from':>6} {'to':>6}  requests, messages about capabilities, journal entries")
    for what, rounds in results.items():
        times = [used for used, _ in rounds]
        made = ", ".join(f"{statistics.median(count):.2f}" for count in zip(*(counted for _, counted in rounds)))
        print(f"{what:27} {statistics.median(times):6.0f} {min(times):6.0f} {max(times):6.0f}  {made}")
    # The library may wait for servers at its end.
    sys.stdout.flush()
    os._exit(0)


main()
