"""The system calls that a sandboxed program may make, and the seccomp filter that allows only these.

The list holds what CPython, NumPy, threads, subprocesses, asyncio and local sockets need. Every other call fails with
EPERM, and calls that are newer than the list fail with ENOSYS, as on an older kernel. The filter is assembled here, because the
launcher also runs where libseccomp is not installed (containers, minimal systems).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from functools import cache

__all__ = ["build_filter", "build_filters", "list_system_calls"]

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The AUDIT_ARCH value of each machine with a table."""

_TABLE = """
read=0/63 write=1/64 readv=19/65 writev=20/66 pread64=17/67 pwrite64=18/68 preadv=295/69 pwritev=296/70
preadv2=327/286 pwritev2=328/287 open=2/ openat=257/56 openat2=437/437 creat=85/ close=3/57 close_range=436/436
dup=32/23 dup2=33/ dup3=292/24 pipe=22/ pipe2=293/59 lseek=8/62 fstat=5/80 stat=4/ lstat=6/ newfstatat=262/79
statx=332/291 fstatfs=138/44 statfs=137/43 access=21/ faccessat=269/48 faccessat2=439/439 readlink=89/
readlinkat=267/78 getcwd=79/17 chdir=80/49 fchdir=81/50 getdents=78/ getdents64=217/61 mkdir=83/ mkdirat=258/34
rmdir=84/ rename=82/ renameat=264/38 renameat2=316/276 link=86/ linkat=265/37 unlink=87/ unlinkat=263/35 symlink=88/
symlinkat=266/36 chmod=90/ fchmod=91/52 fchmodat=268/53 fchmodat2=452/452 chown=92/ lchown=94/ fchown=93/55
fchownat=260/54 umask=95/166 truncate=76/45 ftruncate=77/46 fallocate=285/47 fadvise64=221/223 fsync=74/82
fdatasync=75/83 sync_file_range=277/84 flock=73/32 utime=132/ utimes=235/ utimensat=280/88 futimesat=261/
copy_file_range=326/285 sendfile=40/71 splice=275/76 tee=276/77 mknod=133/ mknodat=259/33 getxattr=191/8
lgetxattr=192/9 fgetxattr=193/10 listxattr=194/11 llistxattr=195/12 flistxattr=196/13 fcntl=72/25 ioctl=16/29

select=23/ pselect6=270/72 poll=7/ ppoll=271/73 epoll_create=213/ epoll_create1=291/20 epoll_ctl=233/21
epoll_wait=232/ epoll_pwait=281/22 epoll_pwait2=441/441 eventfd=284/ eventfd2=290/19 signalfd=282/ signalfd4=289/74
timerfd_create=283/85 timerfd_settime=286/86 timerfd_gettime=287/87

mmap=9/222 mprotect=10/226 munmap=11/215 mremap=25/216 brk=12/214 madvise=28/233 msync=26/227 mincore=27/232
membarrier=324/283 get_mempolicy=239/236 pkey_alloc=330/289 pkey_free=331/290 pkey_mprotect=329/288

clone=56/220 clone3=435/435 fork=57/ vfork=58/ execve=59/221 execveat=322/281 wait4=61/260 waitid=247/95 exit=60/93
exit_group=231/94 set_tid_address=218/96 set_robust_list=273/99 get_robust_list=274/100 futex=202/98
futex_waitv=449/449 futex_wake=454/454 futex_wait=455/455 futex_requeue=456/456 rseq=334/293 arch_prctl=158/
prctl=157/167 restart_syscall=219/128 getpid=39/172 getppid=110/173 gettid=186/178 getpgid=121/155 getpgrp=111/
setpgid=109/154 setsid=112/157 getsid=124/156 getrusage=98/165 getrlimit=97/163 setrlimit=160/164 prlimit64=302/261
getpriority=140/141 setpriority=141/140 sched_yield=24/124 sched_getaffinity=204/123 sched_setaffinity=203/122
sched_getparam=143/121 sched_getscheduler=145/120 sched_getattr=315/275 sched_get_priority_max=146/125
sched_get_priority_min=147/126 sched_rr_get_interval=148/127 getcpu=309/168 pidfd_open=434/434

kill=62/129 tkill=200/130 tgkill=234/131 rt_sigqueueinfo=129/138 rt_tgsigqueueinfo=297/240 pidfd_send_signal=424/424
rt_sigaction=13/134 rt_sigprocmask=14/135 rt_sigreturn=15/139 rt_sigpending=127/136 rt_sigtimedwait=128/137
rt_sigsuspend=130/133 sigaltstack=131/132 pause=34/

alarm=37/ getitimer=36/102 setitimer=38/103 timer_create=222/107 timer_settime=223/110 timer_gettime=224/108
timer_getoverrun=225/109 timer_delete=226/111 nanosleep=35/101 clock_nanosleep=230/115 clock_gettime=228/113
clock_getres=229/114 gettimeofday=96/169 time=201/ times=100/153

getuid=102/174 geteuid=107/175 getgid=104/176 getegid=108/177 getresuid=118/148 getresgid=120/150 getgroups=115/158
capget=125/90 uname=63/160 sysinfo=99/179 getrandom=318/278

socket=41/198 socketpair=53/199 bind=49/200 connect=42/203 listen=50/201 accept=43/202 accept4=288/242
getsockname=51/204 getpeername=52/205 getsockopt=55/209 setsockopt=54/208 shutdown=48/210 sendto=44/206
recvfrom=45/207 sendmsg=46/211 recvmsg=47/212 sendmmsg=307/269 recvmmsg=299/243
"""
"""name=number on x86_64/number on aarch64; a number is missing where the architecture has no such call."""

_LAST_KNOWN_CALL = 462
"""The highest number at the time of writing. Programs expect ENOSYS for newer calls, and then use older ones."""

_SIGNAL_CALLS = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal".split()
_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_MAP_HUGETLB = 0x40000
_FCNTL_DENIED = (8, 10, 15, 1026, 1031)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX, F_NOTIFY: signals for other processes. F_SETPIPE_SZ: memory that no limit counts."""

_IOCTL_ALLOWED = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS (`isatty`), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""

_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_DENY = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS

_Instruction = tuple[int, int, int, int]


@cache
def list_system_calls(machine: str) -> dict[str, int]:
    """Return the names and numbers of the allowed system calls. Some are allowed only with certain arguments."""
    column = list(_ARCHITECTURES).index(machine)
    entries = (entry.split("=") for entry in _TABLE.split())
    numbers = {name: text.split("/")[column] for name, text in entries}
    return {name: int(number) for name, number in numbers.items() if number}


@cache
def build_filters(*, network: bool, signals: bool) -> dict[str, bytes]:
    """Return the filter of each machine. The launcher installs that of the machine it runs on."""
    return {machine: build_filter(machine, network=network, signals=signals) for machine in _ARCHITECTURES}


def build_filter(machine: str, *, network: bool, signals: bool) -> bytes:
    """Assemble the seccomp filter for a machine.

    `network` allows IPv4 and IPv6 sockets, for programs with a network namespace of their own; otherwise only socket pairs are
    allowed. `signals` allows sending signals, for programs that cannot reach the processes of others.
    """
    calls = list_system_calls(machine)
    actions = {number: [(_RETURN, 0, 0, _ALLOW)] for number in calls.values()}
    for name, action in _argument_checks(network=network, signals=signals).items():
        if name in calls:
            actions[calls[name]] = action
    deny, unknown = [(_RETURN, 0, 0, _DENY)], [(_RETURN, 0, 0, _UNKNOWN)]
    segments: list[tuple[int, list[_Instruction]]] = []
    for number in range(_LAST_KNOWN_CALL + 1):
        action = actions.get(number, deny)
        if not segments or segments[-1][1] != action:
            segments.append((number, action))
    segments.append((_LAST_KNOWN_CALL + 1, unknown))
    code = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        *_search(segments),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _argument_checks(*, network: bool, signals: bool) -> dict[str, list[_Instruction]]:
    """Return the code for calls that depend on their arguments or are never allowed."""
    families = (_AF_UNIX, _AF_INET, _AF_INET6) if network else ()
    checks = {
        "clone": [(_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), *_returns(_DENY, _ALLOW)],
        "clone3": [(_RETURN, 0, 0, _UNKNOWN)],  # its flags are in memory; the C library uses `clone` instead
        "socket": _allow_only(0, families),
        "socketpair": _allow_only(0, (_AF_UNIX,)),
        "mmap": [(_LOAD, 0, 0, 40), (_ANY_BIT, 0, 1, _MAP_HUGETLB), *_returns(_DENY, _ALLOW)],
        "ioctl": _allow_only(1, _IOCTL_ALLOWED),
        "fcntl": _allow_only(1, _FCNTL_DENIED, found=_DENY, otherwise=_ALLOW),
        # the limits, priority and processors of this process only
        "prlimit64": _allow_only(0, (0,)),
        "sched_setaffinity": _allow_only(0, (0,)),
        "setpriority": [(_LOAD, 0, 0, 16), (_EQUAL, 1, 0, 0), *_returns(_DENY), *_allow_only(1, (0,))],
    }
    if not signals:
        checks |= {name: [(_RETURN, 0, 0, _DENY)] for name in _SIGNAL_CALLS}
    return checks


def _returns(*values: int) -> list[_Instruction]:
    return [(_RETURN, 0, 0, value) for value in values]


def _allow_only(
    argument: int, values: Sequence[int], *, found: int = _ALLOW, otherwise: int = _DENY
) -> list[_Instruction]:
    """Return `found` if the lower half of an argument is one of the values."""
    comparisons = [(_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [(_LOAD, 0, 0, 16 + 8 * argument), *comparisons, *_returns(otherwise, found)]


def _search(segments: Sequence[tuple[int, list[_Instruction]]]) -> list[_Instruction]:
    """Return a binary search for the segment that holds the number of the call."""
    if len(segments) == 1:
        return list(segments[0][1])
    middle = len(segments) // 2
    lower, upper = _search(segments[:middle]), _search(segments[middle:])
    return [(_AT_LEAST, 0, 1, segments[middle][0]), (_JUMP, 0, 0, len(lower)), *lower, *upper]
