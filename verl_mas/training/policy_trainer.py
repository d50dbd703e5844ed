"""verl's synchronous PPO trainer for one policy of a team.

verl's trainer owns a loop: it draws prompts, samples, scores and steps. In a team that loop belongs to `Loop`; this
class keeps everything else of it (worker groups, servers, weight synchronisation, log-probabilities, losses,
checkpoints of model and optimiser) and exposes the phases that the team drives.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transfer_queue
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.ray_trainer import apply_kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.debug import marked_timer
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from verl_mas.routing.rows import credit_fields, jagged, tag
from verl_mas.training.batches import BatchPlan, pad, plan_batch
from verl_mas.training.metrics import numbers
from verl_mas.training.token_credit import TokenAdvantages, TokenRows
from verl_mas.trajectory.records import Invocation

#: the file of a policy's checkpoint that holds an adaptive KL coefficient
_KL_CONTROL = "kl_control.json"


@dataclass(slots=True)
class PolicyBatch:
    """A policy's rows of one step, on their way through the phases.

    Attributes:
        meta: keys and tags of the rows in the policy's partition, padding included.
        invocations: of the real rows, by row key.
        plan: their split into mini-batches. metrics, seconds: what the phases reported.
    """

    meta: KVBatchMeta
    invocations: Mapping[str, Invocation]
    plan: BatchPlan
    metrics: dict[str, Any]
    seconds: dict[str, float]


class PolicyTrainer(PPOTrainerSync):
    """One policy: its worker group, its vLLM servers, its optimiser, its TransferQueue partition.

    Args:
        policy: the policy's name; also the name of its partition.
        config: a complete verl configuration.
        train: False for a policy that only serves.
        restore: folder of this policy's checkpoint to start from, or None.
    """

    def __init__(self, policy: str, config: DictConfig, *, train: bool = True, restore: Path | None = None):
        self.policy = policy
        self.train = train
        self._restore = restore
        super().__init__(config)
        self.curr_step_profile = False

    # --- verl's template methods that a team answers otherwise -------------------------------------------------------

    def _build_replay_buffer(self) -> None:
        """The team samples; there is no buffer."""

    def _init_dataloader(self) -> None:
        """The loop draws tasks; the horizon of the learning-rate schedules is all that remains."""
        horizon = max(1, self.config.trainer.total_training_steps)
        with open_dict(self.config):
            self.config.actor_rollout_ref.actor.optim.total_training_steps = horizon
            self.config.critic.optim.total_training_steps = horizon

    def _init_resource_pool_mgr(self) -> None:
        """Name the resource pool after the policy: placement groups are named after their pool."""
        super()._init_resource_pool_mgr()
        pools: dict[str, list[int]] = self.resource_pool_manager.resource_pool_spec
        self.resource_pool_manager: ResourcePoolManager = ResourcePoolManager(
            resource_pool_spec={f"{pool}_{self.policy}": devices for pool, devices in pools.items()},
            mapping={role: f"{pool}_{self.policy}" for role, pool in self.mapping.items()},
        )

    def _load_checkpoint(self) -> None:
        """Load model, optimiser, scheduler and RNG of every rank from the team's checkpoint."""
        self.global_steps = 0
        if self._restore is None:
            return
        self.actor_rollout_wg.load_checkpoint(local_path=str(self._restore / "actor"))
        if self.use_critic:
            self.critic_wg.load_checkpoint(local_path=str(self._restore / str(Role.Critic)))
        if self._adapts_kl:
            self.kl_ctrl_in_reward.value = json.loads((self._restore / _KL_CONTROL).read_text())["value"]

    # --- the phases that the team drives -----------------------------------------------------------------------------

    def save(self, folder: Path, step: int) -> None:
        """Write model, optimiser, scheduler and RNG of every rank below `folder`, and an adaptive KL coefficient."""
        self.actor_rollout_wg.save_checkpoint(str(folder / "actor"), None, step, max_ckpt_to_keep=None)
        if self.use_critic:
            self.critic_wg.save_checkpoint(str(folder / str(Role.Critic)), None, step, max_ckpt_to_keep=None)
        if self._adapts_kl:
            (folder / _KL_CONTROL).write_text(json.dumps({"value": self.kl_ctrl_in_reward.value}))

    def pause_serving(self) -> None:
        """Let the servers finish and give their memory to training."""
        self.checkpoint_manager.sleep_replicas()

    def resume_serving(self, step: int) -> None:
        """Send the current weights to the servers and wake them."""
        self.checkpoint_manager.update_weights(step)

    def begin(self, invocations: Sequence[Invocation], step: int, credit_over_tokens: bool) -> PolicyBatch:
        """Attach rewards and advantages to the rows of `invocations`, pad, balance, and compute log-probabilities.

        Args:
            credit_over_tokens: whether the advantages are 0 until `set_token_advantages`.

        Raises:
            ValueError: if `invocations` is empty (a policy without rows skips its update), or one lacks its reward or
                advantage.
        """
        self.global_steps = step
        lengths = [row.num_response_tokens for row in invocations]
        meta = KVBatchMeta(
            partition_id=self.policy,
            keys=[row.row for row in invocations],
            tags=[tag(row.num_prompt_tokens, row.num_response_tokens, step - 1) for row in invocations],
        )
        advantages = [0.0] * len(invocations) if credit_over_tokens else numbers(invocations, "advantage")
        credits = credit_fields(lengths, numbers(invocations, "reward"), advantages)
        transfer_queue.kv_batch_put(keys=meta.keys, partition_id=self.policy, fields=credits)
        plan = plan_batch(len(invocations), self._num_mini_batches(self.config.actor_rollout_ref.actor), self._ranks())
        if plan.padding:
            padding = pad(self.policy, plan.padding, self.tokenizer.eos_token_id, step - 1)
            meta = KVBatchMeta(
                partition_id=self.policy, keys=meta.keys + padding.keys, tags=list(meta.tags) + list(padding.tags)
            )
        batch = PolicyBatch(meta, {row.row: row for row in invocations}, plan, {}, {})
        meta.extra_info["temperature"] = self.config.actor_rollout_ref.rollout.temperature
        batch.meta = self._balance_batch(meta, batch.metrics)
        with marked_timer("old_log_prob", batch.seconds):
            batch.meta = self._compute_old_log_prob(batch.meta, batch.metrics)
        if self.use_reference_policy:
            with marked_timer("ref", batch.seconds):
                batch.meta = self._compute_ref_log_prob(batch.meta, batch.metrics)
        if self.use_critic:
            with marked_timer("values", batch.seconds):
                batch.meta = self._compute_values(batch.meta, batch.metrics)
        return batch

    def token_rows(self, batch: PolicyBatch, credit_over_tokens: bool) -> TokenRows | None:
        """What verl does between log-probabilities and advantages: KL in the reward, and rollout correction.

        Args:
            credit_over_tokens: whether tokens of one response may earn different advantages; if not, they stay where
                they are unless this policy's rollout correction needs them.

        Returns:
            The real rows, for `token_credit`; None if they are not needed.
        """
        algorithm = self.config.algorithm
        correction = algorithm.rollout_correction
        corrects = not correction.bypass_mode and (
            correction.rollout_is is not None or correction.rollout_rs is not None
        )
        if not (credit_over_tokens or corrects):
            return None
        keys = list(batch.meta.keys)
        names = ["response_mask", "rm_scores", "old_log_probs"]
        names += ["rollout_log_probs"] * corrects
        names += ["ref_log_prob"] * algorithm.use_kl_in_reward + ["values"] * self.use_critic
        stored = transfer_queue.kv_batch_get(keys=keys, partition_id=self.policy, select_fields=names)
        lengths = stored["response_mask"].offsets().diff().tolist()
        data = DataProto(batch=stored.to_padded_tensor())
        real = [position for position, key in enumerate(keys) if key in batch.invocations]
        scores = data.batch["rm_scores"][real].float()
        rewards = scores
        if algorithm.use_kl_in_reward:
            data.batch["token_level_scores"] = data.batch["rm_scores"]
            penalised, metrics = apply_kl_penalty(
                data.select_idxs(real), kl_ctrl=self.kl_ctrl_in_reward, kl_penalty=algorithm.kl_penalty
            )
            rewards = penalised.batch["token_level_rewards"].float()
            batch.metrics.update(metrics)
        if corrects:
            data, metrics = compute_rollout_correction_and_add_to_batch(data, correction)
            batch.metrics.update(metrics)
            changed = ["response_mask"] + ["rollout_is_weights"] * ("rollout_is_weights" in data.batch)
            self._write(keys, {name: jagged(data.batch[name], lengths) for name in changed})
        return TokenRows(
            invocations=[batch.invocations[keys[position]] for position in real],
            rewards=rewards,
            kl_penalty=(scores - rewards).sum(1),
            mask=data.batch["response_mask"][real].float(),
            values=data.batch["values"][real].float() if self.use_critic else None,
            gamma=algorithm.gamma,
            lam=algorithm.lam,
        )

    def set_token_advantages(self, rows: TokenRows, credit: TokenAdvantages) -> None:
        """Replace the advantages and returns of the rows in the partition."""
        lengths = [one.num_response_tokens for one in rows.invocations]
        self._write(
            [one.row for one in rows.invocations],
            {
                "advantages": jagged(credit.advantages, lengths),
                "returns": jagged(credit.returns, lengths),
            },
        )

    def update(self, batch: PolicyBatch) -> None:
        """Update the critic, if there is one, and the actor; adds to the batch's metrics and seconds."""
        if self.use_critic:
            with marked_timer("update_critic", batch.seconds):
                self._train("critic", self.config.critic, self.critic_wg.train_mini_batch, batch)
        if self.config.trainer.critic_warmup <= self.global_steps:
            with marked_timer("update_actor", batch.seconds):
                self._train("actor", self.config.actor_rollout_ref.actor, self.actor_rollout_wg.update_actor, batch)

    def clear(self, rows: Sequence[str]) -> None:
        """Drop the step's rows from the partition."""
        if rows:
            transfer_queue.kv_clear(keys=list(rows), partition_id=self.policy)

    # --- details -----------------------------------------------------------------------------------------------------

    @property
    def _adapts_kl(self) -> bool:
        """Whether the coefficient of KL in the reward changes during training."""
        algorithm = self.config.algorithm
        return bool(algorithm.use_kl_in_reward) and algorithm.kl_ctrl.type == "adaptive"

    def _write(self, keys: list[str], tensors: Mapping[str, torch.Tensor]) -> None:
        """Put further fields, jagged along the tokens, to rows of the partition."""
        transfer_queue.kv_batch_put(
            keys=keys, partition_id=self.policy, fields=TensorDict(dict(tensors), batch_size=[len(keys)])
        )

    def _train(self, name: str, settings: DictConfig, update: Any, batch: PolicyBatch) -> None:
        """One call of verl's mini-batch loop with the plan's sizes."""
        extra: Mapping[str, Any] = {
            "global_batch_size": batch.plan.real_rows_per_mini_batch,
            "mini_batch_size": batch.plan.mini_batch_size,
            "epochs": settings.ppo_epochs,
            "seed": settings.data_loader_seed,
            "dataloader_kwargs": {"shuffle": settings.shuffle},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }
        batch.meta.extra_info.update(extra)
        batch.meta.fields = None  # all that the rows have by now: not every phase of verl notes what it has added
        if name == "actor":
            entropy = settings.calculate_entropy or settings.entropy_coeff != 0.0
            batch.meta.extra_info.update(
                calculate_entropy=entropy, distillation_use_topk=False, distillation_only=False
            )
        output = update(batch.meta)
        output = output.get() if hasattr(output, "get") and not hasattr(output, "batch_size") else output
        metrics = rename_dict(output["metrics"], f"{name}/")
        batch.metrics.update(reduce_metrics(metrics))

    def _ranks(self) -> int:
        """Data-parallel size of the actor."""
        info = self.actor_rollout_wg._dispatch_info
        if "actor" not in info:
            info["actor"] = self.actor_rollout_wg._query_dispatch_info("actor")
        return max(info["actor"]) + 1

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """The plan has already made the rows divisible."""
        return dp_size

    def _num_mini_batches(self, settings: DictConfig) -> int:
        """Optimiser steps per epoch: tasks per step over tasks per mini-batch, verl's own ratio."""
        return max(1, self.config.data.train_batch_size // settings.ppo_mini_batch_size)
