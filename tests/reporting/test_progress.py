"""The bar on a terminal, the lines elsewhere, and the time left."""

import io

import pytest

from verl_mas.reporting.progress import RunProgress, describe_step, format_duration

RECORD = {
    "step": 1,
    "phase_seconds": {"rollout": 5.12, "learn": 3.0, "learn/update_actor": 2.5},
    "success_rate": 0.4123,
    "reward/tool": 0.25,
    "reward/tool/team": 0.125,
    "reward/planner": -0.5,
    "tool/actor/pg_loss": 0.1,
}


@pytest.fixture(autouse=True)
def a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.4, "59s"), (59.6, "1m00s"), (188, "3m08s"), (3599.7, "1h00m"), (7500, "2h05m")]
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        format_duration(-1)


def test_a_step_is_described_by_success_rewards_by_role_and_phases() -> None:
    assert describe_step(RECORD) == "success 41.2%  reward tool 0.250 planner -0.500  rollout 5.1s learn 3.0s"


def test_a_step_without_rewards_is_described_by_what_it_has() -> None:
    assert describe_step({"step": 3, "phase_seconds": {"rollout": 1}}) == "rollout 1.0s"


def test_without_a_terminal_there_is_one_line_per_step() -> None:
    stream = io.StringIO()
    with RunProgress(stream, total_steps=3) as progress:
        progress.announce("success before training: 12.0%")
        progress.phase("rollout")
        progress.step(RECORD)
        progress.step({**RECORD, "step": 2, "phase_seconds": {"rollout": 4.0}})
    # 8.12 s and 4 s: a pace of 6.06 s per step.
    assert stream.getvalue().splitlines() == [
        "success before training: 12.0%",
        "step 1/3  success 41.2%  reward tool 0.250 planner -0.500  rollout 5.1s learn 3.0s  16s left",
        "step 2/3  success 41.2%  reward tool 0.250 planner -0.500  rollout 4.0s  6s left",
    ]


def test_time_left_is_unknown_before_the_first_step_and_counts_from_a_resumed_one() -> None:
    progress = RunProgress(io.StringIO(), total_steps=50, done_steps=40)
    assert progress.seconds_left() is None
    progress.step({"step": 41, "phase_seconds": {"rollout": 1.0, "learn": 1.5, "learn/update_actor": 1.0}})
    assert progress.seconds_left() == 9 * 2.5


def test_time_left_follows_the_recent_pace() -> None:
    progress = RunProgress(io.StringIO(), total_steps=100)
    for step in range(1, 51):
        progress.step({"step": step, "phase_seconds": {"rollout": 10.0 if step <= 30 else 2.0}})
    assert progress.seconds_left() == 50 * 2.0


def test_on_a_terminal_the_bar_shows_the_last_step_and_what_goes_on() -> None:
    screen = Screen()
    now = iter(range(100_000))
    with RunProgress(screen, total_steps=4, clock=lambda: float(next(now))) as progress:
        progress.phase("starting Ray")
        progress.announce("run in runs/one")
        progress.step(RECORD)
        progress.phase("rollout")
    shown = screen.getvalue()
    assert "run in runs/one" in shown
    assert "starting Ray" in shown
    final = shown[shown.rindex("step 1/4") :]
    assert "24s left" in final
    assert "done" in final
    assert "reward tool 0.250 planner -0.500" in final


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    with RunProgress(screen, total_steps=1) as progress:
        progress.step({"step": 1, "success_rate": 0.5})
    assert screen.getvalue() == "step 1/1  success 50.0%\n"


def test_a_run_that_fails_does_not_say_done() -> None:
    screen = Screen()

    def failing_run() -> None:
        with RunProgress(screen, total_steps=4):
            raise RuntimeError("the server died")

    with pytest.raises(RuntimeError, match="the server died"):
        failing_run()
    assert "stopped" in screen.getvalue()
    assert "done" not in screen.getvalue()


def test_more_steps_done_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="done_steps"):
        RunProgress(io.StringIO(), total_steps=3, done_steps=4)
