"""verl-mas: trains teams of LLM agents with reinforcement learning, on verl."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import pluggy

__all__ = ["__version__", "hookimpl", "hookspec"]

hookspec = pluggy.HookspecMarker("verl_mas")
hookimpl = pluggy.HookimplMarker("verl_mas")

#: version of the installed package; reading it where verl-mas is not installed is an ImportError
__version__: str

if not TYPE_CHECKING:  # hidden from type checkers, which would otherwise accept any attribute

    def __getattr__(name: str) -> str:
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return version("verl-mas")
        except PackageNotFoundError as error:
            raise ImportError(
                "verl-mas is not installed, so it has neither a version nor its built-in plugins: "
                "run `pip install -e .` in its repository"
            ) from error
