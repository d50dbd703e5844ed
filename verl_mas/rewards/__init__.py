"""Reward managers: one reward and its breakdown for every invocation."""

from verl_mas.rewards.base import Reward, RewardManager
from verl_mas.rewards.parts import Component, RewardParts
from verl_mas.rewards.rule import MIXINGS, RuleRewardManager
from verl_mas.rewards.rules import (
    Assignment,
    DelayedRule,
    DeltaRule,
    RewardRule,
    Rule,
    node_rule,
    trajectory_rule,
    turn_rule,
)

__all__ = [
    "MIXINGS",
    "Assignment",
    "Component",
    "DelayedRule",
    "DeltaRule",
    "Reward",
    "RewardManager",
    "RewardParts",
    "RewardRule",
    "Rule",
    "RuleRewardManager",
    "node_rule",
    "trajectory_rule",
    "turn_rule",
]
