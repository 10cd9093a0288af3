#!/usr/bin/env python3
"""Runs a command where io_uring is refused, as seccomp filters of containers refuse it.

Usage: scripts/without-ring.py EPERM|ENOSYS|EINVAL COMMAND [ARGUMENT...]
"""
import ctypes
import errno
import os
import struct
import sys

if len(sys.argv) < 3 or sys.argv[1] not in ("EPERM", "ENOSYS", "EINVAL"):
    sys.exit(__doc__.strip())
refused = getattr(errno, sys.argv[1])

# seccomp(2): a program for the classic BPF machine over struct seccomp_data, whose first word is
# the number of the call. 425 to 427 are io_uring_setup, io_uring_enter and io_uring_register on
# every architecture.
LOAD, JUMP_IF_AT_LEAST, JUMP_IF_ABOVE, RETURN = 0x20, 0x35, 0x25, 0x06
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7FFF0000
steps = [
    (LOAD, 0, 0, 0),
    (JUMP_IF_AT_LEAST, 0, 2, 425),
    (JUMP_IF_ABOVE, 1, 0, 427),
    (RETURN, 0, 0, SECCOMP_RET_ERRNO | refused),
    (RETURN, 0, 0, SECCOMP_RET_ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(program), 0, 0):
    sys.exit(f"a filter of system calls is refused: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[2], sys.argv[2:])
