"""Whose is a key: a layer's settings, divided into the run's own, verl's for all policies, and verl's for one."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from verl_mas.config.overrides import Override
from verl_mas.config.schema import AlgorithmConfig, PolicyConfig, RewardConfig, RunConfig
from verl_mas.config.verl_tree import is_config_group


def _names(config: type) -> frozenset[str]:
    return frozenset(one.name for one in fields(config))


#: keys of the run
RUN_KEYS = _names(RunConfig)
#: keys of policies.<name> that are not verl's
POLICY_KEYS = _names(PolicyConfig)
#: sections that the run and verl share, each with the keys that are the run's
SHARED_KEYS = {"reward": _names(RewardConfig), "algorithm": _names(AlgorithmConfig)}


@dataclass
class Layer:
    """One layer of settings.

    Attributes:
        where: what it is, for messages.
        run: the run's own settings.
        verl: verl's, for every policy. policies: verl's, for one policy each.
        groups, policy_groups: Hydra overrides that choose among verl's config groups.
        defines: whether it may name new roles and policies. force: whether any key may be new.
        override: the command-line argument that this layer is, else None.
    """

    where: str
    run: dict[str, Any] = field(default_factory=dict)
    verl: dict[str, Any] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    policy_groups: dict[str, list[str]] = field(default_factory=dict)
    defines: bool = False
    force: bool = False
    override: Override | None = None


def split(content: Mapping[str, Any], where: str, *, defines: bool = False, force: bool = False) -> Layer:
    """Divide a file's settings. What is malformed stays where it is, for the merge to report."""
    layer = Layer(where, defines=defines, force=force)
    for key, value in content.items():
        if key == "policies" and isinstance(value, Mapping):
            for name, body in value.items():
                _split_policy(layer, str(name), body)
        elif key in SHARED_KEYS and isinstance(value, Mapping):
            ours = {name: inner for name, inner in value.items() if name in SHARED_KEYS[key]}
            theirs = {name: inner for name, inner in value.items() if name not in SHARED_KEYS[key]}
            layer.run |= {key: ours} if ours else {}
            layer.verl |= {key: theirs} if theirs else {}
        elif key in RUN_KEYS:
            layer.run[key] = value
        elif key == "model_engine":
            layer.groups.append(f"model_engine={value}")
        else:
            layer.verl[key] = value
    return layer


def _split_policy(layer: Layer, name: str, body: Any) -> None:
    policies = layer.run.setdefault("policies", {})
    if body is not None and not isinstance(body, Mapping):
        policies[name] = body
        return
    body = body or {}
    policies[name] = {key: value for key, value in body.items() if key in POLICY_KEYS}
    rest = {key: value for key, value in body.items() if key not in POLICY_KEYS}
    if "model_engine" in rest:
        layer.policy_groups[name] = [f"model_engine={rest.pop('model_engine')}"]
    if rest:
        layer.policies[name] = rest


def split_override(override: Override, where: str) -> Layer:
    """The layer that one argument of the command line is."""
    path = override.path
    of_policy = path[0] == "policies" and len(path) > 2 and path[2] not in POLICY_KEYS
    inner = override.below(2) if of_policy else override
    if _chooses_group(inner):
        layer = Layer(where, override=override)
        if of_policy:
            layer.run["policies"] = {path[1]: {}}
            layer.policy_groups[path[1]] = [inner.group()]
        else:
            layer.groups.append(inner.group())
        return layer
    layer = split(override.nested(), where, force=override.add)
    layer.override = override
    return layer


def _chooses_group(override: Override) -> bool:
    if override.delete or len(override.path) != 1:
        return override.package is not None
    name = override.path[0]
    chosen = override.package is not None or (isinstance(override.value, str) and is_config_group(name))
    return chosen and name not in SHARED_KEYS
