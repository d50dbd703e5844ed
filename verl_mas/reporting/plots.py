"""The learning curve: success on held-out problems and in training, and the reward of each role, over the steps."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from verl_mas.reporting.files import write_bytes
from verl_mas.reporting.records import role_rewards
from verl_mas.reporting.statistics import SuccessRate


def plot_learning_curve(
    path: Path,
    records: Sequence[Mapping[str, Any]],
    validations: Mapping[int, SuccessRate],
    title: str = "",
) -> None:
    """Draw the run as a PNG at `path`, without a display and without pyplot's global state.

    Args:
        path: the picture; replaced at once if it exists.
        records: the metrics records of the steps ("step", "success_rate", "reward/<role>").
        validations: success on held-out problems by the number of steps before it (`RunDirectory.read_validations`).
        title: over the picture; the recipe's name.

    Raises:
        ValueError: there is nothing to draw.
        OSError: the picture cannot be written.
    """
    if not records and not validations:
        raise ValueError("a learning curve needs at least one step or one validation")
    figure = Figure(figsize=(8, 6.5), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    success, reward = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    if title:
        figure.suptitle(title)
    _draw_success(success, records, validations)
    _draw_rewards(reward, records)
    reward.set_xlabel("training step")
    reward.xaxis.set_major_locator(MaxNLocator(integer=True))
    picture = io.BytesIO()
    canvas.print_png(picture)
    write_bytes(path, picture.getvalue())


def _draw_success(axes: Axes, records: Sequence[Mapping[str, Any]], validations: Mapping[int, SuccessRate]) -> None:
    steps, rates = _series(records, "success_rate")
    if steps:
        axes.plot(steps, rates, color="tab:blue", alpha=0.6, linewidth=1.2, label="training tasks, as sampled")
    if validations:
        at = sorted(validations)
        rates = [validations[step].rate for step in at]
        intervals = [validations[step].interval for step in at]
        below = [rate - low for rate, (low, _) in zip(rates, intervals, strict=True)]
        above = [high - rate for rate, (_, high) in zip(rates, intervals, strict=True)]
        trials = sorted({validation.trials for validation in validations.values()})
        label = f"{' or '.join(map(str, trials))} held-out problems, greedy (95% Wilson interval)"
        axes.errorbar(at, rates, yerr=(below, above), color="black", marker="o", capsize=4, linewidth=1.5, label=label)
    axes.set_ylabel("success rate")
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    _finish(axes)


def _draw_rewards(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    for role in dict.fromkeys(role for record in records for role in role_rewards(record)):
        steps, rewards = _series(records, f"reward/{role}")
        axes.plot(steps, rewards, linewidth=1.2, label=role)
    axes.set_ylabel("mean reward by role")
    _finish(axes)


def _series(records: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """The steps at which `key` was recorded, and its values; "NaN" and "Infinity" (files.plain) are gaps."""
    present = [record for record in records if key in record]
    return [int(record["step"]) for record in present], [float(record[key]) for record in present]


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="best", fontsize="small")
