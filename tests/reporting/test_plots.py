"""The learning curve is a picture of the numbers that it was given."""

import io
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from verl_mas.reporting.plots import plot_learning_curve
from verl_mas.reporting.statistics import SuccessRate

RECORDS = [
    {"step": step, "success_rate": step / 10, "reward/tool": 0.1, "reward/planner": 0.2, "reward/tool/team": 0.05}
    for step in range(1, 6)
]


def ink(path: Path) -> int:
    """Pixels that are not white."""
    picture = imread(io.BytesIO(path.read_bytes()), format="png")
    return int(np.sum(picture[..., :3].min(axis=-1) < 0.99))


def test_training_and_validation_both_leave_ink(tmp_path: Path) -> None:
    validations = {0: SuccessRate(40, 200), 5: SuccessRate(120, 200)}
    plot_learning_curve(tmp_path / "validation.png", [], validations)
    plot_learning_curve(tmp_path / "training.png", RECORDS, {})
    plot_learning_curve(tmp_path / "both.png", RECORDS, validations, title="atgrpo_sokoban")
    assert ink(tmp_path / "both.png") > max(ink(tmp_path / "validation.png"), ink(tmp_path / "training.png"))


def test_the_same_numbers_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        plot_learning_curve(tmp_path / name, RECORDS, {5: SuccessRate(5, 10)})
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


def test_no_backend_is_chosen_for_the_process(tmp_path: Path) -> None:
    with matplotlib.rc_context({"backend": "svg"}):
        plot_learning_curve(tmp_path / "curve.png", RECORDS, {})
        assert matplotlib.rcParams["backend"] == "svg"


def test_a_reward_that_is_not_a_number_is_a_gap_and_no_error(tmp_path: Path) -> None:
    plot_learning_curve(tmp_path / "gap.png", [*RECORDS, {"step": 6, "reward/tool": "NaN", "success_rate": 0.6}], {})
    assert ink(tmp_path / "gap.png") > 0


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one step or one validation"):
        plot_learning_curve(tmp_path / "curve.png", [], {})
    assert not list(tmp_path.iterdir())
