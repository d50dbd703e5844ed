"""The error of a configuration: all of its problems at once."""

from collections.abc import Iterable, Iterator


class ConfigError(ValueError):
    """A configuration that cannot run. `problems` holds one line each, and each names the key that is wrong."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        title = "1 problem" if count == 1 else f"{count} problems"
        super().__init__(
            "\n".join([f"{title} in the configuration:", *(f"  - {problem}" for problem in self.problems)])
        )

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)


class Problems:
    """Collects problems in the order in which they are met, each once."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    def add(self, line: str) -> None:
        self._lines[line] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def raise_if_any(self) -> None:
        """Raise ConfigError with everything collected so far, if there is anything."""
        if self._lines:
            raise ConfigError(self._lines)
