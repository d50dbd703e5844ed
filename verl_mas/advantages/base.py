"""What an estimator is: options checked when it is made, the sampling schemes it can use, a call on Credits."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from verl_mas.advantages.credits import Credits
from verl_mas.config.suggest import unknown_name_error

FloatArray = npt.NDArray[np.float64]
Level = Literal["invocation", "token"]
E = TypeVar("E", bound="Estimator")

#: what estimators tell apart in sampling: joint sampling is aligned or cross, each linear or a tree
SCHEMES = ("parallel", "tree", "joint_aligned", "joint_cross", "joint_tree", "joint_cross_tree")


@dataclass(frozen=True, kw_only=True)
class Estimator(ABC):
    """Credits in, one advantage per invocation out. The fields of a subclass are its options.

    Attributes:
        name: what a user types.
        level: "invocation" if the advantage is a number per invocation, computed here; "token" if it needs values of
            every token and is computed where the tokens are.
    """

    name: ClassVar[str]
    level: ClassVar[Level] = "invocation"

    @abstractmethod
    def refusals(self) -> Mapping[str, str]:
        """The sampling schemes that this estimator, with its options, cannot work with; and why."""

    @abstractmethod
    def estimate(self, credits: Credits) -> FloatArray:
        """The advantages of at least one row, shape (n,)."""

    @property
    def schemes(self) -> frozenset[str]:
        """The sampling schemes that this estimator, with its options, can work with."""
        return frozenset(SCHEMES) - self.refusals().keys()

    def refusal(self, scheme: str) -> str | None:
        """Why the estimator cannot work with the scheme; None if it can.

        Raises:
            UnknownNameError: no such scheme.
        """
        if scheme not in SCHEMES:
            raise unknown_name_error("sampling scheme", scheme, SCHEMES)
        reason = self.refusals().get(scheme)
        return None if reason is None else f"{self.name} cannot work with {scheme} sampling: {reason}"

    def with_options(self: E, **options: Any) -> E:
        """The same estimator with some options changed.

        Raises:
            ValueError: an unknown option or a wrong value; the message names the nearest valid one.
        """
        current = {field.name: getattr(self, field.name) for field in fields(self)}
        for option in options:
            if option not in current:
                raise unknown_name_error(f"{self.name} option", option, current)
        return type(self)(**(current | options))

    def __call__(self, credits: Credits, **options: Any) -> FloatArray:
        """One advantage per invocation, in the given order, shape (n,).

        Raises:
            ValueError: wrong options, or credits that the estimator cannot use.
        """
        if options:
            return self.with_options(**options)(credits)
        if not isinstance(credits, Credits):
            raise TypeError(f"{self.name} takes Credits, not {type(credits).__name__}")
        if len(credits) == 0 and self.level == "invocation":
            return np.zeros(0)
        try:
            with np.errstate(over="raise", invalid="raise"):
                advantage = self.estimate(credits)
        except FloatingPointError as error:
            raise ValueError(f"reward: too large for {self.name} ({error})") from error
        if not np.isfinite(advantage).all():
            raise ValueError(f"reward: too large for {self.name} (the advantage is not finite)")
        return advantage

    def check_choice(self, option: str, known: Iterable[str]) -> None:
        """Raise UnknownNameError unless the option's value is one of `known`."""
        known = tuple(known)
        if (value := getattr(self, option)) not in known:
            raise unknown_name_error(f"value of {self.name} option {option}:", str(value), known)
