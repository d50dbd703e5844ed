"""What a person is told of an error."""

import pytest
from ray.exceptions import RayTaskError

from verl_mas.training.errors import describe_error


def caused(error, cause):
    error.__cause__ = cause
    return error


def test_kind_and_first_line_of_an_error_and_of_its_causes():
    error = caused(ValueError(), OSError("no space left\nand more"))
    assert describe_error(error) == "ValueError: no message\n  because of OSError: no space left"


@pytest.mark.parametrize("dual", [False, True])
def test_of_a_remote_error_its_cause_and_not_rays_traceback(dual):
    there = caused(ValueError("half"), OSError("no space left"))
    here = RayTaskError("save", "a traceback\nof many lines", there, proctitle="p", pid=1, ip="127.0.0.1")
    here = here.as_instanceof_cause() if dual else here
    assert describe_error(caused(RuntimeError("failed"), here)).splitlines() == [
        "RuntimeError: failed",
        "  because of ValueError: half",
        "  because of OSError: no space left",
    ]
