"""Programs that attack a sandbox. Each prints `ESCAPED` if it succeeds; a program that is stopped has not escaped."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from assay.core.ports import Sandbox
from assay.core.records.programs import Program, ResourceLimits

__all__ = ["ATTACKS", "run_attacks"]

_START = """
import ctypes, mmap, os, resource, signal, socket, subprocess, sys, time
library = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
def call(x86_number, arm_number, *arguments):
    values = [one if isinstance(one, (bytes, ctypes.Array)) else ctypes.c_long(one) for one in arguments]
    return library.syscall(ctypes.c_long(x86_number if x86 else arm_number), *values)
def escaped(condition):
    if condition: print("ESCAPED", flush=True)
"""

_CALLS = {
    "unshare user": "call(272, 97, 0x10000000) == 0",
    "unshare mount": "call(272, 97, 0x20000) == 0",
    "unshare network": "call(272, 97, 0x40000000) == 0",
    "setns": "call(308, 268, os.open('/proc/self/ns/user', 0), 0) == 0",
    "mount tmpfs": "call(165, 40, b'x', b'/box', b'tmpfs', 0, 0) == 0",
    "remount": "call(165, 40, b'', b'/box', b'', 32, b'size=4g') == 0",
    "umount": "call(166, 39, b'/proc', 2) == 0",
    "fsopen": "call(430, 430, b'tmpfs', 0) >= 0",
    "open_tree": "call(428, 428, -100, b'/', 1) >= 0",
    "mount_setattr": "call(442, 442, -100, b'/', 0, 0, 0) == 0",
    "pivot_root": "call(155, 41, b'.', b'.') == 0",
    "chroot": "call(161, 51, b'/box') == 0",
    "ptrace the launcher": "call(101, 117, 16, os.getppid(), 0, 0) == 0",
    "process_vm_writev": "library.process_vm_writev(os.getppid(), 0, 0, 0, 0, 0) >= 0",
    "pidfd_getfd": "call(438, 438, call(434, 434, os.getppid(), 0), 1, 0) >= 0",
    "kill the launcher": "call(62, 129, os.getppid(), 0) == 0 and os.getppid() > 1 and os.kill(os.getppid(), 15) is None and False",
    "memfd": "call(319, 279, b'x', 0) >= 0",
    "memfd_secret": "call(447, 447, 0) >= 0",
    "shmget": "call(29, 194, 0, 1 << 20, 0o1600) >= 0",
    "semget": "call(64, 190, 0, 1, 0o1600) >= 0",
    "msgget": "call(68, 186, 0, 0o1600) >= 0",
    "mq_open": "call(240, 180, b'x', 66, 0o600, 0) >= 0",
    "bpf": "call(321, 280, 0, bytes(64), 64) >= 0",
    "io_uring": "call(425, 425, 4, bytes(256)) >= 0",
    "userfaultfd": "call(323, 282, 1) >= 0",
    "perf": "call(298, 241, bytes(128), 0, -1, -1, 0) >= 0",
    "keyctl": "call(250, 219, 0, -3, 1) >= 0",
    "add_key": "call(248, 217, b'user', b'x', b'y', 1, -3) >= 0",
    "name_to_handle_at": "call(303, 264, -100, b'/box', bytes(200), bytes(8), 0) >= 0",
    "init_module": "call(175, 105, 0, 0, b'') == 0",
    "reboot": "call(169, 142, 0xfee1dead, 672274793, 0) == 0",
    "sethostname": "call(170, 161, b'x', 1) == 0",
    "settimeofday": "call(164, 170, 0, 0) == 0",
    "swapon": "call(167, 224, b'/box', 0) == 0",
    "syslog": "call(103, 116, 3, bytearray(10) and 0, 0) >= 0",
    "personality": "call(135, 92, 0x0040000) >= 0",
    "capset": "call(126, 91, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)) == 0",
    "setuid": "call(105, 146, 0) == 0",
    "prlimit of the launcher": "call(302, 261, os.getppid(), 7, 0, 0) == 0",
    "affinity of the launcher": "call(203, 122, os.getppid(), 8, bytes([1] + [0] * 7)) == 0",
    "priority of the user": "call(141, 140, 2, 0, 19) == 0",
    "x32 calls": "x86 and library.syscall(ctypes.c_long(0x40000000 | 39)) > 0",
}
_SOCKETS = {"netlink": 16, "packet": 17, "alg": 38, "vsock": 40, "xdp": 44, "bluetooth": 31, "kcm": 41}
_PROGRAMS = {
    "clone into a user namespace": "pid = call(56, 220, 0x10000011, 0, 0, 0, 0)\nif pid == 0: os._exit(0)\nescaped(pid > 0)",
    "clone3": "escaped(call(435, 435, (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, 17, 0, 0, 0), 64) >= 0)",
    "write the launcher's memory": "open('/proc/%d/mem' % os.getppid(), 'r+b'); escaped(True)",
    "read the launcher's environment": "escaped(open('/proc/%d/environ' % os.getppid(), 'rb').read())",
    "use the launcher's pipes": "escaped(os.listdir('/proc/%d/fd' % os.getppid()))",
    "the root of process 1": "escaped(os.path.exists('/proc/1/root/root') and os.listdir('/proc/1/root/root'))",
    "change the kernel": "open('/proc/sys/kernel/core_pattern', 'w').write('x'); escaped(True)",
    "write outside": "open('/usr/escaped', 'w'); escaped(True)",
    "write through a link": "os.symlink('/usr', 'link'); open('link/escaped', 'w'); escaped(True)",
    "open a disk": "os.mknod('disk', 0o60600, os.makedev(254, 0)); open('disk', 'rb').read(1); escaped(True)",
    "open special devices": "for name in ('kvm', 'vsock', 'mem', 'fuse', 'vda'):\n    try: open('/dev/' + name, 'rb')\n"
    "    except OSError: continue\n    escaped(True)",
    "run a program with the setuid bit": "done = subprocess.run(['su', '-c', 'id'], capture_output=True, input=b'')\n"
    "escaped(b'uid=0' in done.stdout)",
    "a connection to the internet": "socket.create_connection(('192.0.2.1', 80), 0.5); escaped(True)",
    "a datagram to another machine": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53)); escaped(True)",
    "an abstract socket": "other = socket.socket(socket.AF_UNIX)\nfor name in ('/tmp/.X11-unix/X0', '@/org/freedesktop/systemd1'):\n"
    "    try: other.connect(name.replace('@', chr(0)))\n    except OSError: continue\n    escaped(True)",
    "more shared memory than allowed": "for _ in range(6):\n    if os.fork() == 0: break\nkept = mmap.mmap(-1, 60 << 20)\n"
    "kept[:] = bytes([1]) * (60 << 20)\ntime.sleep(3)\nescaped(True)",
    "more memory than allowed": "kept = []\nwhile len(kept) < 100: kept.append(b'x' * (10 << 20))\nescaped(True)",
    "huge pages": "mmap.mmap(-1, 2 << 20, flags=0x40022); escaped(True)",
    "larger pipes": "import fcntl\nreader, writer = os.pipe()\nfcntl.fcntl(writer, 1031, 1 << 20); escaped(True)",
    "signals through a descriptor": "import fcntl\nfcntl.fcntl(socket.socketpair()[0], 8, os.getppid()); escaped(True)",
    "more processes than allowed": "for count in range(200):\n    if os.fork() == 0: time.sleep(4); os._exit(0)\nescaped(True)",
    "higher limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1)); escaped(True)",
    "more files than allowed": "resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999)); escaped(True)",
    "more time than allowed": "for number in range(1, 32):\n    if number not in (9, 19): signal.signal(number, signal.SIG_IGN)\n"
    "time.sleep(30); escaped(True)",
    "endless output": "for _ in range(3000): print('x' * 1000)\nescaped(True)",
    "a file larger than allowed": "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfile = open('a', 'wb', 0)\n"
    "for _ in range(40): file.write(b'x' * (1 << 20))\nescaped(os.path.getsize('a') > 20 << 20)",
    "kernel code of 32 bits": "if not x86: sys.exit()\ncode = mmap.mmap(-1, 4096, prot=7)\n"
    "code.write(bytes.fromhex('b814000000cd80c3'))\n"
    "escaped(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0)",
}  # fmt: skip

ATTACKS: Mapping[str, str] = {
    **{name: f"escaped({source})" for name, source in _CALLS.items()},
    **{f"socket {name}": f"socket.socket({family}, 3); escaped(True)" for name, family in _SOCKETS.items()},
    **_PROGRAMS,
}
"""The attacks by name."""

_LIMITS = ResourceLimits(
    time_s=6.0, memory_bytes=200 << 20, output_bytes=100_000, file_bytes=20 << 20, processes=40, open_files=64
)


async def run_attacks(
    sandbox: Sandbox, names: Sequence[str] = tuple(ATTACKS), *, at_once: int = 3
) -> tuple[list[str], Counter[str]]:
    """Run attacks and return those that escaped, and how the programs ended."""
    slots, escaped, endings = asyncio.Semaphore(at_once), [], Counter[str]()

    async def attack(name: str) -> None:
        async with slots:
            done = await sandbox.execute(Program(source=_START + ATTACKS[name], limits=_LIMITS))
        endings[done.exit_reason] += 1
        if "ESCAPED" in done.stdout:
            escaped.append(name)

    await asyncio.gather(*map(attack, names))
    return sorted(escaped), endings
