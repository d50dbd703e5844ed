"""Resources are compared before anything waits for them, and processes of a run share what they must."""

import pytest

from verl_mas.training.cluster import ClusterTooSmall, check_resources
from verl_mas.training.process_environment import POLICIES_VARIABLE, RUN_VARIABLE, process_environment


def test_enough_resources_pass():
    assert check_resources({"CPU": 8.0, "GPU": 2.0}, {"CPU": 8, "GPU": 2}) is None


def test_every_short_resource_is_named_with_its_setting():
    with pytest.raises(ClusterTooSmall) as caught:
        check_resources({"CPU": 4.0}, {"CPU": 8, "GPU": 2})
    assert "8 logical CPUs are needed and Ray has 4 (see ray.num_cpus)" in str(caught.value)
    assert "2 logical GPUs are needed and Ray has 0" in str(caught.value)


def test_two_runs_on_one_machine_have_different_tokens():
    first, second = (process_environment({"A": "1"}, ["tool", "planner"]) for _ in range(2))
    assert first[POLICIES_VARIABLE] == "tool,planner"
    assert first["A"] == "1"
    assert first[RUN_VARIABLE] != second[RUN_VARIABLE]
