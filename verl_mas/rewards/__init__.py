"""Reward managers: one reward and its breakdown for every invocation."""

from verl_mas.rewards.base import Reward, RewardManager
from verl_mas.rewards.parts import Component, RewardParts
from verl_mas.rewards.rule import MIXINGS, Rule, RuleRewardManager

__all__ = ["MIXINGS", "Component", "Reward", "RewardManager", "RewardParts", "Rule", "RuleRewardManager"]
