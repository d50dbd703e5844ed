"""The command line, in Hydra's override syntax, as data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from verl_mas.config.errors import Problems


@dataclass(frozen=True, slots=True)
class Override:
    """One argument.

    Attributes:
        text: as typed.
        path: the key's parts, for example ("policies", "tool", "train").
        value: the new value. For a deletion, None.
        add: `+` or `++`: the key may be new. delete: `~`.
        package: what follows `@` where a config group is named, else None.
    """

    text: str
    path: tuple[str, ...]
    value: Any
    add: bool = False
    delete: bool = False
    package: str | None = None

    @property
    def key(self) -> str:
        return ".".join(self.path)

    def below(self, depth: int) -> "Override":
        """The same override, seen from `depth` levels further down."""
        return Override(self.text, self.path[depth:], self.value, self.add, self.delete, self.package)

    def nested(self) -> dict[str, Any]:
        """The override as a layer: {a: {b: value}}."""
        value = self.value
        for part in reversed(self.path):
            value = {part: value}
        return value

    def group(self) -> str:
        """The override as Hydra reads it where it names a config group."""
        package = f"@{self.package}" if self.package is not None else ""
        return f"{'+' if self.add else ''}{'.'.join(self.path)}{package}={self.value}"


def parse_overrides(argv: Sequence[str], problems: Problems) -> list[Override]:
    """The arguments in order; what cannot be parsed becomes a problem."""
    parser = OverridesParser.create()
    parsed = []
    for text in argv:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            reason = " ".join(str(error).split("\n")[0].split())
            problems.add(f"{text}: not an override; write key=value, +key=value or ~key ({reason})")
            continue
        if override.is_sweep_override():
            problems.add(f"{text}: several values; give one, or quote the text")
            continue
        path = tuple(override.key_or_group.split("."))
        if "" in path:
            problems.add(f"{text}: not a key; a key is names with single dots between them")
            continue
        parsed.append(
            Override(
                text=text,
                path=path,
                value=None if override.is_delete() else override.value(),
                add=override.is_add() or override.is_force_add(),
                delete=override.is_delete(),
                package=override.package,
            )
        )
    return parsed
