"""Policies in lock step: who learns, who skips, and what an error does."""

import threading
import time

import pytest
import torch
import transfer_queue

from verl_mas.training.batches import plan_batch
from verl_mas.training.policy_trainer import PolicyBatch
from verl_mas.training.team import StartupTimeout, Team, _Starting
from verl_mas.training.token_credit import TokenRows
from verl_mas.trajectory.records import Invocation


class Trainer:
    """Records what the team asks of it."""

    def __init__(self, train=True, error=None, barrier=None):
        self.train = train
        self.error = error
        self.barrier = barrier
        self.calls = []

    def pause_serving(self):
        self.calls.append("pause")

    def resume_serving(self, step):
        self.calls.append(f"resume {step}")

    def begin(self, rows, step, credit_over_tokens):
        self.calls.append(("begin", [row.row for row in rows]))
        by_key = {row.row: row for row in rows}
        return PolicyBatch(None, by_key, plan_batch(len(rows), 1, 1), {"loss": float(len(rows))}, {"old_log_prob": 0.5})

    def token_rows(self, batch, credit_over_tokens):
        self.calls.append(("token_rows", credit_over_tokens))
        if not credit_over_tokens:
            return None
        return TokenRows(list(batch.invocations.values()), *[torch.ones(1, 1)] * 3, None, 1.0, 1.0)

    def set_token_advantages(self, rows, credit):
        self.calls.append(("credit", credit))

    def update(self, batch):
        if self.error:
            raise self.error
        if self.barrier:
            self.barrier.wait(timeout=30)
        self.calls.append("update")
        batch.seconds["update_actor"] = 1.0


@pytest.fixture(autouse=True)
def partitions(monkeypatch):
    cleared = []
    monkeypatch.setattr(transfer_queue, "kv_list", lambda: {"tool": {"x": {}}, "planner": {}})
    monkeypatch.setattr(transfer_queue, "kv_clear", lambda keys, partition_id: cleared.append((partition_id, keys)))
    return cleared


def row(key, policy, masked=False):
    return Invocation(key, "t", 0, policy, policy, 0, 0, "", "", "", 1, 1, reward=1.0, advantage=1.0, masked=masked)


def test_each_policy_learns_from_its_own_rows_in_a_fixed_order(partitions):
    trainers = {"tool": Trainer(), "planner": Trainer()}
    learned = Team(trainers).learn([row("b", "tool"), row("c", "planner"), row("a", "tool")], step=4)
    assert trainers["tool"].calls == ["pause", ("begin", ["a", "b"]), ("token_rows", False), "update", "resume 4"]
    assert trainers["planner"].calls == ["pause", ("begin", ["c"]), ("token_rows", False), "update", "resume 4"]
    assert (learned.metrics["tool/loss"], learned.metrics["planner/loss"]) == (2.0, 1.0)
    assert learned.seconds["update_actor"] == 1.0
    assert learned.skipped == []
    assert partitions == [("tool", ["x"])]


def test_a_policy_without_rows_skips_its_update_and_is_named():
    trainers = {"tool": Trainer(), "planner": Trainer()}
    learned = Team(trainers).learn([row("a", "tool")], step=1)
    assert trainers["planner"].calls == ["pause", "resume 1"]
    assert learned.skipped == ["planner"]


def test_a_frozen_policy_only_serves_and_is_not_reported_as_skipped():
    trainers = {"tool": Trainer(train=False), "planner": Trainer()}
    learned = Team(trainers).learn([row("a", "tool"), row("b", "planner")], step=1)
    assert trainers["tool"].calls == ["pause", "resume 1"]
    assert learned.skipped == []


def test_credit_over_tokens_waits_for_the_rows_of_all_policies_that_learn():
    trainers = {"tool": Trainer(), "planner": Trainer(), "frozen": Trainer(train=False)}
    seen = []

    def credit(shards):
        seen.append({policy: [one.row for one in shard.invocations] for policy, shard in shards.items()})
        assert all("update" not in trainer.calls for trainer in trainers.values())
        return {policy: f"credit of {policy}" for policy in shards}

    rows = [row("a", "tool"), row("b", "planner"), row("c", "frozen")]
    Team(trainers).learn(rows, step=1, token_credit=credit)
    assert seen == [{"tool": ["a"], "planner": ["b"]}]
    for policy in ("tool", "planner"):
        assert trainers[policy].calls[2:5] == [("token_rows", True), ("credit", f"credit of {policy}"), "update"]


def test_masked_rows_are_not_trained_on():
    trainers = {"tool": Trainer()}
    Team(trainers).learn([row("a", "tool"), row("b", "tool", masked=True)], step=1)
    assert trainers["tool"].calls[1] == ("begin", ["a"])


def test_policies_update_at_the_same_time():
    barrier = threading.Barrier(2)  # broken unless both updates are under way at once
    trainers = {name: Trainer(barrier=barrier) for name in ("tool", "planner")}
    Team(trainers).learn([row("a", "tool"), row("b", "planner")], step=1)
    assert not barrier.broken


def test_an_update_that_fails_ends_the_step():
    trainers = {"tool": Trainer(error=MemoryError("out of memory")), "planner": Trainer()}
    with pytest.raises(MemoryError, match="out of memory"):
        Team(trainers).learn([row("a", "tool"), row("b", "planner")], step=1)
    assert "resume 1" not in trainers["tool"].calls


def test_what_does_not_start_is_named():
    never = threading.Event()
    with pytest.raises(StartupTimeout, match=r"the servers did not start within 5 s; .*ray.startup_timeout_s"):
        _Starting("the servers", never.wait).wait(deadline=0.0, timeout_s=5)
    never.set()


def test_an_error_while_starting_is_raised_in_the_waiting_thread():
    def fail():
        raise OSError("port taken")

    with pytest.raises(OSError, match="port taken"):
        _Starting("a server", fail).wait(deadline=time.monotonic() + 60, timeout_s=60)
