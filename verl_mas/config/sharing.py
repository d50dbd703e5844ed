"""The role map: which policies a run starts, and how their roles sample."""

from collections.abc import Mapping

from omegaconf import DictConfig

from verl_mas.config.errors import Problems
from verl_mas.config.suggest import unknown_name_error


def roles_of(run: DictConfig) -> dict[str, list[str]]:
    """The roles that each policy serves, by policy, for those policies that serve any."""
    served: dict[str, list[str]] = {}
    for role, settings in run.roles.items():
        if policy := settings.get("policy"):
            served.setdefault(policy, []).append(role)
    return served


def check_role_map(run: DictConfig, addressed: frozenset[str], problems: Problems) -> list[str]:
    """Check that roles and policies fit, and return what is worth telling.

    A policy that no role uses is left out, so that the role map alone decides what is shared.

    Args:
        addressed: policies that the command line names under `policies.`; one of them that no role uses is a problem.
    """
    served = roles_of(run)
    for policy, roles in served.items():
        if policy not in run.policies:
            for role in roles:
                problems.add(f"roles.{role}.policy: {unknown_name_error('policy', policy, map(str, run.policies))}")
    if run.policies and not run.roles:
        problems.add(f"roles: there are policies ({', '.join(run.policies)}) but no role; add roles.<role>.policy")
        return []
    facts = []
    for policy in run.policies:
        if policy in served:
            frozen = "" if run.policies[policy].train else " (not trained)"
            facts.append(f"policy {policy}{frozen} serves {', '.join(served[policy])}")
        elif policy in addressed:
            problems.add(f"policies.{policy}: no role uses this policy, so the setting would have no effect")
        else:
            facts.append(f"policy {policy} serves no role and is not started")
    return facts


def settle_sampling(run: DictConfig, policies: Mapping[str, DictConfig], problems: Problems) -> None:
    """Fill what a role leaves open from its policy's tree, in place, and give the policy its roles' temperature."""
    for name, roles in roles_of(run).items():
        if name not in policies:
            continue
        rollout = policies[name].actor_rollout_ref.rollout
        for role in roles:
            sampling = run.roles[role].sampling
            for key in ("temperature", "top_p", "top_k"):
                if sampling[key] is None:
                    sampling[key] = rollout[key]
            if sampling.max_tokens is None:
                sampling.max_tokens = rollout.response_length
        temperatures = {role: run.roles[role].sampling.temperature for role in roles}
        if len(set(temperatures.values())) > 1:
            listed = ", ".join(f"roles.{role}.sampling.temperature={value}" for role, value in temperatures.items())
            problems.add(
                f"{listed}: roles of one policy ({name}) must sample at one temperature, by which verl scales its "
                "log-probabilities; make them equal, or give the roles policies of their own"
            )
        elif roles:
            rollout.temperature = temperatures[roles[0]]
