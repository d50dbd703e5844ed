"""The name `gae`. Its numbers need the values of every token, so they are computed where the tokens are, by verl."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from verl_mas.advantages.base import Estimator, Level
from verl_mas.advantages.credits import Credits


@dataclass(frozen=True, kw_only=True)
class Gae(Estimator):
    """Token-level GAE with a critic per policy; each invocation is an episode. UnityMAS-O, Eq. 20-21.

    Options:
        whiten_over: "policy" or "role": which tokens share the mean and the variance.
    """

    name: ClassVar[str] = "gae"
    level: ClassVar[Level] = "token"
    whiten_over: Literal["policy", "role"] = "policy"

    def __post_init__(self) -> None:
        self.check_choice("whiten_over", ("policy", "role"))

    def refusals(self) -> Mapping[str, str]:
        shared = "a response is part of several joint actions and has no reward of its own"
        return {"joint_cross": shared, "joint_cross_tree": shared}

    def estimate(self, credits: Credits) -> npt.NDArray[np.float64]:
        raise ValueError("gae is token-level: it needs a critic's values of every token, which Credits does not have")
