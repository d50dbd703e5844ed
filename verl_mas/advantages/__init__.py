"""Advantage estimators: pure functions of one small table, `Credits`, without verl or torch.

`get_estimator("at_grpo")(Credits(reward=[1, 0, 0, 0]))` gives [1.499997, -0.499999, -0.499999, -0.499999].
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from verl_mas.advantages.base import SCHEMES, Estimator
from verl_mas.advantages.credits import Credits
from verl_mas.advantages.gae import Gae
from verl_mas.advantages.grouped import AgentGrpo, AtGrpo, GroupEstimator, Reinforce, Remax, Rloo
from verl_mas.advantages.magrpo import Magrpo
from verl_mas.advantages.reinforce_pp import ReinforcePpGlobal, Sums, combine, normalize, sums
from verl_mas.config.suggest import unknown_name_error

__all__ = [
    "ESTIMATORS",
    "SCHEMES",
    "Credits",
    "Estimator",
    "GroupEstimator",
    "Sums",
    "combine",
    "get_estimator",
    "normalize",
    "sums",
]

#: the estimators of this package by name, each with its default options
ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {
        estimator.name: estimator
        for estimator in (AtGrpo(), ReinforcePpGlobal(), Magrpo(), Gae(), AgentGrpo(), Rloo(), Remax(), Reinforce())
    }
)


def get_estimator(name: str, **options: Any) -> Estimator:
    """The estimator of this name, with these options in place of their defaults.

    Raises:
        ValueError: an unknown name or option, or a wrong value; the message names the nearest valid one.
    """
    if name not in ESTIMATORS:
        raise unknown_name_error("advantage estimator", name, ESTIMATORS)
    return ESTIMATORS[name].with_options(**options)
