"""How a policy's uneven rows become equal mini-batches: nothing is dropped, padding carries no loss."""

import math
from dataclasses import dataclass

import transfer_queue
from transfer_queue import KVBatchMeta

from verl_mas.routing.rows import TokenRow, credit_fields, fields, tag


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The shape of one policy's update.

    Attributes:
        rows: real rows. padding: rows of zero loss weight to add.
        num_mini_batches: optimiser steps per epoch. mini_batch_size: rows of each, padding included.
    """

    rows: int
    padding: int
    num_mini_batches: int
    mini_batch_size: int

    @property
    def real_rows_per_mini_batch(self) -> float:
        """By what sequence-mean losses divide, so that padding does not shrink them."""
        return self.rows / self.num_mini_batches


def plan_batch(rows: int, num_mini_batches: int, parallel: int) -> BatchPlan:
    """Split `rows` rows over `num_mini_batches` updates on `parallel` ranks with the least padding.

    Fewer mini-batches are made where there are too few rows, so that no mini-batch can consist of padding alone.

    Raises:
        ValueError: if an argument is not positive.
    """
    if min(rows, num_mini_batches, parallel) < 1:
        raise ValueError(f"rows, mini-batches and ranks must be positive: {rows}, {num_mini_batches}, {parallel}")
    for count in range(num_mini_batches, 0, -1):
        size = math.ceil(rows / (count * parallel)) * parallel
        padding = count * size - rows
        if padding < size or count == 1:
            return BatchPlan(rows, padding, count, size)
    raise AssertionError("one mini-batch always fits")


def pad(partition: str, padding: int, end_token: int, step: int) -> KVBatchMeta:
    """Write `padding` rows of one masked token to the partition; their reward and advantage are zero."""
    rows = [TokenRow([end_token], [end_token], [0.0], step)] * padding
    batch = fields(rows)
    for name in ("response_mask", "loss_mask"):
        batch[name] = batch[name] * 0
    batch.update(credit_fields([1] * padding, [0.0] * padding, [0.0] * padding))
    keys = [f"padding.{index}" for index in range(padding)]
    tags = [{**tag(1, 1, step), "is_padding": True} for _ in keys]
    transfer_queue.kv_batch_put(keys=keys, partition_id=partition, fields=batch, tags=tags)
    return KVBatchMeta(partition_id=partition, keys=keys, tags=tags)
