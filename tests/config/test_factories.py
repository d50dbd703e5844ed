"""An advantage estimator may be provided as an instance, a class or a function; each gets `algorithm.options`."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf

from verl_mas.advantages import Credits
from verl_mas.advantages.base import Estimator
from verl_mas.config.factories import make_estimator
from verl_mas.config.suggest import UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Scaled(Estimator):
    name = "scaled"
    factor: float = 1.0

    def refusals(self):
        return {}

    def estimate(self, credits):
        return credits.reward * self.factor


def scaled(credits, *, factor=1.0):
    return credits.reward * factor


def made(provided, **options):
    run = OmegaConf.create({"algorithm": {"adv_estimator": "scaled", "options": options}})
    return make_estimator(run, SimpleNamespace(advantage_estimators={"scaled": provided}))


FORMS = pytest.mark.parametrize("provided", [Scaled, Scaled(), scaled], ids=["class", "instance", "function"])


@FORMS
def test_every_form_gets_the_options(provided):
    credits = Credits(reward=[1, 2])
    np.testing.assert_array_equal(made(provided)(credits), [1, 2])
    np.testing.assert_array_equal(made(provided, factor=3)(credits), [3, 6])


@FORMS
def test_every_form_refuses_an_unknown_option_and_names_the_nearest(provided):
    with pytest.raises(UnknownNameError, match=r"'facto'.*'factor'"):
        made(provided, facto=3)
