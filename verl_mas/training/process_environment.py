"""Environment variables that every process of a run shares; importable before verl is."""

import secrets
from collections.abc import Mapping, Sequence

#: names of the run's policies, comma-separated
POLICIES_VARIABLE = "VERL_MAS_POLICIES"
#: a token that no other run on the machine has
RUN_VARIABLE = "VERL_MAS_RUN"


def process_environment(platform: Mapping[str, str], policies: Sequence[str]) -> dict[str, str]:
    """The variables of the driver and of every worker. Put them into `os.environ` before verl is first imported.

    Args:
        platform: what the platform needs. policies: names of the run's policies.
    """
    return {
        **platform,
        "TRANSFER_QUEUE_ENABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VERL_USE_EXTERNAL_MODULES": "verl_mas.training.external",
        POLICIES_VARIABLE: ",".join(policies),
        RUN_VARIABLE: secrets.token_hex(4),
    }
