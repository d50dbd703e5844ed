"""Runs inside the sandbox, before the untrusted program and in its place: gives up rights, sets limits, and becomes it.

Started as `python -c <this text> <settings as JSON>`; needs nothing but the standard library.
"""

import json
import os
import resource
import sys


def main() -> None:
    """Report "ready" on `report_fd`, which closes when the program starts, or what went wrong."""
    settings = json.loads(sys.argv[1])
    report = settings["report_fd"]
    os.set_inheritable(report, False)
    os.closerange(3, report)  # what bubblewrap leaves open
    os.closerange(report + 1, os.sysconf("SC_OPEN_MAX"))
    try:
        user = settings["user"]
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        for name, limit in settings["limits"].items():
            resource.setrlimit(getattr(resource, name), tuple(limit))
        os.write(report, b"ready")
        os.execv(settings["command"][0], settings["command"])
    except (OSError, ValueError) as error:
        os.write(report, f"{type(error).__name__}: {error}".encode())
        raise


if __name__ == "__main__":
    main()
