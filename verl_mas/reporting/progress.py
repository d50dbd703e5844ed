"""What a person sees while a run goes on: a bar on a terminal, a line per step anywhere else."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from statistics import fmean
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from verl_mas.reporting.records import phase_seconds, role_rewards

# Steps over which the pace is averaged: enough to even out, few enough to follow a change.
_PACE_STEPS = 20


def format_duration(seconds: float) -> str:
    """Seconds as a person reads them: 8s, 3m08s, 2h05m.

    Raises:
        ValueError: the duration is negative.
    """
    if seconds < 0:
        raise ValueError(f"a duration cannot be negative, got {seconds}")
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def describe_step(record: Mapping[str, Any]) -> str:
    """One line about a step's metrics record: success rate, reward per role, seconds per phase.

    Keys that the record lacks are left out of the line: a step whose policies got no rows has no rewards to tell.
    """
    parts = []
    if "success_rate" in record:
        parts.append(f"success {float(record['success_rate']):.1%}")
    rewards = [f"{role} {reward:.3f}" for role, reward in role_rewards(record).items()]
    if rewards:
        parts.append("reward " + " ".join(rewards))
    phases = [f"{name} {seconds:.1f}s" for name, seconds in phase_seconds(record).items()]
    if phases:
        parts.append(" ".join(phases))
    return "  ".join(parts)


class RunProgress:
    """Shows step, success rate, reward per role, seconds per phase and time left. A context manager.

    On a terminal, a bar that stays at the bottom; elsewhere, one compact line per step and per announcement.

    Args:
        stream: where to; the terminal that `redirect_output` kept, since standard error goes to the log.
        total_steps: training steps of the whole run.
        done_steps: steps behind a resumed run.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        stream: TextIO,
        total_steps: int,
        done_steps: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 <= done_steps <= total_steps:
            raise ValueError(f"done_steps must lie in 0..{total_steps}, got {done_steps}")
        self._stream = stream
        self._total = total_steps
        self._done = done_steps
        self._clock = clock
        self._step_seconds: deque[float] = deque(maxlen=_PACE_STEPS)
        self._phase = "starting"
        self._phase_began = clock()
        self._detail = ""
        self._spinner = Spinner("dots")
        # What the stream is decides, not FORCE_COLOR and its like.
        self._console = Console(file=stream, highlight=False, force_terminal=stream.isatty())
        self._interactive = self._console.is_terminal and not self._console.is_dumb_terminal
        # Standard output and error belong to the log, so rich must not take them over.
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "RunProgress":
        if self._interactive:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._interactive:
            self._phase = "stopped" if error is not None else "done"
            self._live.stop()

    def announce(self, text: str) -> None:
        """Say something that stays: a line above the bar."""
        if self._interactive:
            self._console.print(Text(text))
        else:
            self._write(text)

    def phase(self, name: str) -> None:
        """Say what is going on now ("starting Ray", "rollout", "update"); shown on a terminal only."""
        self._phase = name
        self._phase_began = self._clock()
        if self._interactive:
            self._live.refresh()

    def step(self, record: Mapping[str, Any]) -> None:
        """A step is done; `record` is its metrics record."""
        seconds = phase_seconds(record)
        if seconds:
            self._step_seconds.append(sum(seconds.values()))
        self._done = int(record["step"])
        self._detail = describe_step(record)
        if self._interactive:
            self._live.refresh()
        else:
            self._write("  ".join(filter(None, (f"step {self._done}/{self._total}", self._detail, self._time_left()))))

    def seconds_left(self) -> float | None:
        """Seconds that the remaining steps take at the recent pace; None before the first step is done.

        The pace is that of the phases which the records time: validations and checkpoints come on top.
        """
        if not self._step_seconds:
            return None
        return fmean(self._step_seconds) * max(0, self._total - self._done)

    def _time_left(self) -> str:
        left = self.seconds_left()
        return "" if left is None else f"{format_duration(left)} left"

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 1))
        self._spinner.update(text=f"{self._phase} {format_duration(max(0.0, self._clock() - self._phase_began))}")
        finished = self._phase in ("done", "stopped")
        bar.add_row(
            Text(f"step {self._done}/{self._total}"),
            ProgressBar(total=max(1, self._total), completed=self._done, width=30),
            Text(self._time_left()),
            Text(self._phase) if finished else self._spinner,
        )
        return Group(bar, Text(self._detail, overflow="ellipsis", no_wrap=True))
