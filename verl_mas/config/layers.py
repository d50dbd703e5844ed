"""Merging one layer of settings into a tree: every key must exist and every value must fit, or it is a problem.

OmegaConf's own merge stops at the first wrong key and does not say what was meant; this one collects them all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from verl_mas.config.errors import Problems
from verl_mas.config.suggest import unknown_name_error

#: so many names are listed in a message; of more, only the nearest
_LISTED = 12
#: what the entries of a section are called
_KINDS = {"roles": "role", "policies": "policy"}


@dataclass(frozen=True)
class Tree:
    """What a tree accepts.

    Attributes:
        typed: a structured config, which checks its own values; else an untyped one (verl's).
        open_paths: sections that take any key.
        elements: sections whose entries have a type: they take new names while a recipe defines them.
        elsewhere: valid names, by section, that belong to another tree; only for saying what may have been meant.
        checks_values: whether a value that an untyped tree could never use is a problem.
    """

    typed: bool = False
    open_paths: frozenset[str] = frozenset()
    elements: Mapping[str, type] = field(default_factory=dict)
    elsewhere: Mapping[str, frozenset[str]] = field(default_factory=dict)
    checks_values: bool = True

    def is_open(self, path: str) -> bool:
        """Whether the section at `path` takes any key."""
        return any(path == known or path.startswith(f"{known}.") for known in self.open_paths)


@dataclass(frozen=True)
class Merge:
    """One layer on its way into one tree.

    Attributes:
        tree: what the tree accepts.
        problems: takes what is wrong.
        where: the layer, for messages: "recipe x", "command line".
        prefix: stands before every key in messages, for example "policies.tool.".
        defines: whether the layer may name new roles and policies.
        force: whether any key may be new.
    """

    tree: Tree
    problems: Problems
    where: str
    prefix: str = ""
    defines: bool = False
    force: bool = False

    def into(self, target: DictConfig, layer: Mapping[Any, Any]) -> None:
        """Write the layer into `target`, in place. A key that begins with `+` may be new."""
        self._section(target, layer, "")

    def delete(self, target: DictConfig, path: tuple[str, ...]) -> None:
        """Remove the key at `path` from `target`, in place."""
        node: Any = target
        for depth, name in enumerate(path):
            section = ".".join(path[:depth])
            if not isinstance(node, DictConfig) or not has_key(node, name):
                known = node.keys() if isinstance(node, DictConfig) else ()
                self._problem(section, name, self._unknown(section, name, known))
                return
            if depth < len(path) - 1:
                node = None if OmegaConf.is_missing(node, name) else node[name]
        parent = ".".join(path[:-1])
        if self.tree.typed and parent not in self.tree.elements and not self.tree.is_open(parent):
            self._problem(parent, path[-1], "cannot be removed; set it to another value")
            return
        with open_dict(node):
            del node[path[-1]]

    def _section(self, node: DictConfig, layer: Mapping[Any, Any], path: str) -> None:
        for raw, value in layer.items():
            name = str(raw)
            merge = self
            if name.startswith("+"):
                name, merge = name[1:], replace(self, force=True)
            merge._entry(node, name, value, path)

    def _entry(self, node: DictConfig, name: str, value: Any, path: str) -> None:
        full = f"{path}.{name}" if path else name
        if not has_key(node, name):
            self._new_entry(node, name, value, path)
        elif isinstance(value, Mapping):
            child = self._section_at(node, name)
            if child is not None:
                self._section(child, value, full)
            elif OmegaConf.is_missing(node, name) or node[name] is None:
                self._set(node, name, dict(value), path)
            else:
                self._problem(path, name, f"is a value, not a section (it is {node[name]!r})")
        elif (child := self._section_at(node, name)) is None:
            self._set(node, name, value, path)
        elif value is None and self.tree.typed:
            return  # a section header with nothing below it
        elif value is None or _is_interpolation(value):
            self._set(node, name, value, path)
        else:
            self._problem(path, name, f"is a section, not a value; it holds {', '.join(map(str, child.keys()))}")

    def _new_entry(self, node: DictConfig, name: str, value: Any, path: str) -> None:
        full = f"{path}.{name}" if path else name
        if path in self.tree.elements and (self.defines or self.force):
            if value is not None and not isinstance(value, Mapping):
                self._problem(path, name, "is a section, not a value")
                return
            node[name] = OmegaConf.structured(self.tree.elements[path])
            self._section(node[name], value or {}, full)
        elif self.tree.is_open(path) or (self.force and not self.tree.typed):
            self._set(node, name, _without_plus(value), path)
        else:
            self._problem(path, name, self._unknown(path, name, node.keys()))

    def _set(self, node: DictConfig, name: str, value: Any, path: str) -> None:
        plain = has_key(node, name) and not OmegaConf.is_missing(node, name)
        plain = plain and not OmegaConf.is_interpolation(node, name)
        if plain and not self.tree.typed and self.tree.checks_values:
            wrong = _type_problem(node[name], value)
            if wrong is not None:
                self._problem(path, name, wrong)
                return
        try:
            with open_dict(node):
                node[name] = value
        except OmegaConfBaseException as error:
            self._problem(path, name, (error.msg or str(error)).split("\n")[0])

    @staticmethod
    def _section_at(node: DictConfig, name: str) -> DictConfig | None:
        """The section called `name`; one that is an interpolation is replaced by a copy of what it stands for."""
        if OmegaConf.is_missing(node, name):
            return None
        if not OmegaConf.is_interpolation(node, name):
            return node[name] if OmegaConf.is_dict(node[name]) else None
        try:
            child = node[name]
        except OmegaConfBaseException:  # it points at what a later layer defines
            return None
        if not OmegaConf.is_dict(child):
            return None
        node[name] = OmegaConf.create(OmegaConf.to_container(child, resolve=True))
        return node[name]

    def _unknown(self, path: str, name: str, known: Iterable[Any]) -> str:
        names = {str(key) for key in known} | self.tree.elsewhere.get(path, frozenset())
        return describe_unknown(_KINDS.get(path, "key"), name, names)

    def _problem(self, path: str, name: str, text: str) -> None:
        full = f"{path}.{name}" if path else name
        self.problems.add(f"{self.prefix}{full} ({self.where}): {text}")


def has_key(node: DictConfig, name: str) -> bool:
    """Whether the section has the key, with or without a value (`in` says no where the value is missing)."""
    return name in list(node)


def describe_unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """What is wrong with `name`: the nearest valid one, and all valid ones unless they are many."""
    error = unknown_name_error(kind, name, known)
    if error.nearest is None or len(error.known) <= _LISTED:
        return str(error)
    return f"unknown {kind} {name!r}; did you mean {error.nearest!r}?"


def _is_interpolation(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def _without_plus(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(key).removeprefix("+"): _without_plus(inner) for key, inner in value.items()}


def _type_problem(old: Any, new: Any) -> str | None:
    """Why `new` cannot replace `old` in an untyped tree, None if it can. Only what verl could never use is refused."""
    if new is None or new == "???" or _is_interpolation(new):
        return None
    if isinstance(old, bool):
        return None if isinstance(new, bool) else f"must be true or false, not {new!r}"
    if isinstance(old, int | float):
        number = isinstance(new, int | float) and not isinstance(new, bool)
        return None if number else f"must be a number, not {new!r}"
    return None
