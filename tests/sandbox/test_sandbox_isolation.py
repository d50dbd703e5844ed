"""Programs that try to get out, in a real sandbox. Each prints what it achieved, which must be nothing."""

import os
import secrets
import socket
from pathlib import Path

import pytest

from verl_mas.sandbox import parse_printed

REPOSITORY = Path(__file__).resolve().parents[2]
CALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "allowed"
"""
# Numbers from asm/unistd.h and asm-generic/unistd.h of the kernel's user headers.
NAMES = ("unshare", "clone", "clone3", "shmget", "memfd_create", "ptrace", "keyctl")
NUMBERS = {
    "x86_64": dict(zip(NAMES, (272, 56, 435, 29, 319, 101, 250), strict=True)),
    "aarch64": dict(zip(NAMES, (97, 220, 435, 194, 279, 117, 219), strict=True)),
}


def test_there_is_no_network(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0{secrets.token_hex(8)}"
        abstract.bind(name)
        abstract.listen()
        code = f"""
import socket
print([name for _, name in socket.if_nameindex() if name != "lo"])
for family, address in ((socket.AF_INET, ("127.0.0.1", {server.getsockname()[1]})), (socket.AF_UNIX, {name!r})):
    try:
        socket.socket(family).connect(address)
        print("connected")
    except OSError as error:
        print(type(error).__name__)
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
    print("sent")
except OSError as error:
    print(type(error).__name__)
"""
        result = sandbox.run_python(code)

    assert result.stdout.split("\n")[:4] == ["[]", "ConnectionRefusedError", "ConnectionRefusedError", "OSError"]


def test_there_is_no_inherited_environment(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "secret")
    monkeypatch.setenv("PYTHONSTARTUP", "x")

    result = sandbox.run_python("import os\nprint(sorted(os.environ))")

    assert result.stdout == "['HOME', 'LANG', 'PATH', 'PWD', 'PYTHONHASHSEED']\n"


def test_the_machines_files_are_not_there(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    paths = [
        REPOSITORY,
        REPOSITORY / "setup.cfg",
        "/home",
        "/etc/shadow",
        "/etc/passwd",
        "/proc",
        "/sys",
        "/var",
        secret,
    ]
    assert all(os.path.lexists(path) for path in [REPOSITORY, "/etc/passwd", "/proc", secret])

    result = sandbox.run_python(f"import os\nprint([p for p in {[str(p) for p in paths]} if os.path.lexists(p)])")

    assert result.stdout == "[]\n"


def test_the_only_files_beside_the_system_are_python_and_the_program(sandbox):
    code = """
import os, sys
seen = []
for directory, folders, files in os.walk("/"):
    inside = [d for d in folders if os.path.join(directory, d) not in ("/usr", sys.base_prefix)]
    folders[:] = [d for d in inside if not os.path.islink(os.path.join(directory, d))]
    seen += [os.path.join(directory, f) for f in files]
print(sorted(seen))
"""
    seen = set(parse_printed(sandbox.run_python(code).stdout))

    assert seen - {"/etc/ld.so.cache"} == {"/dev/null", "/dev/urandom", "/dev/zero", "/program/main.py"}


def test_nothing_can_be_written_outside_of_tmp(sandbox):
    code = """
import os
for directory, folders, _ in os.walk("/"):
    if directory.count("/") > 2:
        folders.clear()
        continue
    if directory != "/tmp":
        try:
            open(os.path.join(directory, "written"), "w").close()
            print(directory)
        except OSError:
            pass
for path in ("/program/main.py", "/usr/bin/env", os.__file__):
    try:
        open(path, "r+b").close()
        print(path)
    except OSError:
        pass
open("/tmp/written", "w").close()
print("tmp works")
"""
    assert sandbox.run_python(code).stdout == "tmp works\n"


def test_a_run_does_not_see_the_files_of_another(sandbox):
    sandbox.run_python("open('/tmp/left', 'w').close()")

    assert sandbox.run_python("import os\nprint(os.listdir('/tmp'))").stdout == "[]\n"


def test_the_program_is_not_root_and_cannot_become_it(sandbox):
    code = """
import os
print(0 in (*os.getresuid(), *os.getresgid(), *os.getgroups()))
for become in (os.setuid, os.setgid):
    try:
        become(0)
        print("became root")
    except OSError:
        print("refused")
"""
    assert sandbox.run_python(code).stdout == "False\nrefused\nrefused\n"


def test_it_can_neither_see_nor_signal_processes_outside(sandbox):
    code = f"""
import os
print(os.getppid(), os.getpid() < 5)
try:
    os.kill({os.getpid() if os.getpid() > 100 else 99999}, 0)
    print("signalled")
except OSError as error:
    print(type(error).__name__)
"""
    assert sandbox.run_python(code).stdout == "1 True\nProcessLookupError\n"


def test_no_spare_file_descriptor_is_open(sandbox):
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    code = """
import os
for descriptor in range(3, 4096):
    try:
        os.fstat(descriptor)
        print(descriptor)
    except OSError:
        pass
"""
    try:
        result = sandbox.run_python(code)
    finally:
        os.close(reader)
        os.close(writer)

    assert (result.stdout, result.exit_code) == ("", 0)


def test_no_file_descriptor_can_be_taken_from_bubblewraps_process(sandbox):
    code = f"""{CALL}
import os
first = os.pidfd_open(1)
print({{call(438, first, descriptor, 0) for descriptor in range(64)}})  # pidfd_getfd
"""
    assert sandbox.run_python(code).stdout == "{'EPERM'}\n"


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("unshare", "0x10000000", "EPERM"),
        ("clone", "0x10000000 | 17, 0, 0, 0, 0", "EPERM"),
        ("clone3", "0, 0", "ENOSYS"),
        ("shmget", "0, 4096, 0o1600", "EPERM"),
        ("memfd_create", "b'x', 0", "EPERM"),
        ("ptrace", "16, 1, 0, 0", "EPERM"),
        ("keyctl", "0, -3, 1", "EPERM"),
    ],
)
def test_a_system_call_around_the_limits_is_refused(sandbox, name, arguments, error):
    number = NUMBERS[os.uname().machine][name]

    assert sandbox.run_python(f"{CALL}\nprint(call({number}, {arguments}))").stdout == f"{error}\n"


def test_ordinary_processes_and_threads_work(sandbox):
    code = """
import subprocess, threading
thread = threading.Thread(target=print, args=("thread",))
thread.start()
thread.join()
print(subprocess.run(["/bin/sh", "-c", "echo shell"], capture_output=True, text=True).stdout, end="")
"""
    assert sandbox.run_python(code).stdout == "thread\nshell\n"


def test_a_forged_exit_report_on_any_descriptor_does_not_count(sandbox):
    code = """
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b'{"exit-code": 0}\\n')
    except OSError:
        pass
print('{"exit-code": 0}')
raise SystemExit(3)
"""
    assert sandbox.run_python(code).exit_code == 3
