"""Does every estimator learn? Each of the four named ones on a small task of its own, with two policies, on a CPU.

    python benchmarks/learning.py --out FOLDER [--seeds 0 1 2] [--only magrpo gae ...] [key=value ...]

Tasks (the writers' are in verl_mas_games/writers/environment.py):

- magrpo: two writers whose words must fit together, joint sampling; no role can earn the reward alone;
- reinforce_pp_global: two writers with a letter each, scored by a coach: a scripted endpoint on loopback, which this
  command serves. Success is the environment's, which no reward is made of;
- gae: the same two writers, scored by the environment, with a critic for each policy;
- at_grpo: Sokoban, tool and planner, tree sampling;
- credit_per_role, credit_shared: two writers of which only the first can help, under the same estimator, seeds and
  learning rate; a role is paid for its own word, or both share the mean, in which the second's luck is noise.

Every run has its own folder below FOLDER; finished runs are not repeated, so the command can be interrupted. Prints one
line per task and seed: success on held-out tasks before and after, with 95% Wilson intervals, minutes and GiB. For the
credit tasks FOLDER/credit.png has success over the steps, and a second table the steps until it reached a fixed rate.
"""

import argparse
import contextlib
import io
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from runs import run_once, write_header, write_row

from verl_mas.reporting.files import read_json_lines, write_bytes
from verl_mas_games.writers.words import matching, read_word

LENGTH = 3
LETTERS = {"first": "U", "second": "L"}
_WRITERS = ("recipe=writers", f"environment.options.length={LENGTH}")
_LETTERS = (
    *_WRITERS,
    "environment.options.goal=letters",
    f"environment.options.letters={''.join(LETTERS.values())}",
    "sampling.scheme=parallel",
    "sampling.n=4",
)
_GUESS = (  # few tasks in a step, and no baseline that is the same task's, so that luck does not average out
    *_WRITERS,
    "environment.options.goal=guess",
    "sampling.scheme=parallel",
    "sampling.n=4",
    "tasks_per_step=8",
    "steps=24",
    "algorithm.adv_estimator=reinforce_pp_global",
    "algorithm.options.normalize_over=role",
    "reward.mixing=convex",
)
TASKS: Mapping[str, Sequence[str]] = {
    "magrpo": _WRITERS,
    "reinforce_pp_global": (
        *_LETTERS,
        "algorithm.adv_estimator=reinforce_pp_global",
        "algorithm.use_kl_in_reward=true",
        "algorithm.kl_penalty=kl",
        "algorithm.kl_ctrl.kl_coef=0.01",
        "reward.manager=coach",
        "reward.options={model: scripted, api_key_env: null}",
    ),
    "gae": (
        *_LETTERS,
        "algorithm.adv_estimator=gae",
        "reward.mixing=convex",
        "reward.lam=0.5",
        "critic.optim.lr=1.0e-3",
    ),
    "at_grpo": ("recipe=atgrpo_sokoban",),
    "credit_per_role": (*_GUESS, "reward.lam=0.0"),
    "credit_shared": (*_GUESS, "reward.lam=1.0"),
}
CREDIT = ("credit_per_role", "credit_shared")
#: share of a training step's trajectories that succeed, at which learning counts as done
REACHED = 0.5

_ROLE = re.compile(r"^Current agent being evaluated:\n(\w+)$", re.MULTILINE)
_OUTPUT = re.compile(r"^<<<BEGIN agent_output (\w+)>>>\n(.*?)\n<<<END agent_output \1>>>$", re.MULTILINE | re.DOTALL)


def verdict(prompt: str) -> str:
    """What the scripted coach says about the action that its prompt shows: ten times the share of right letters.

    Raises:
        ValueError: the prompt does not show a role and an action.
    """
    role, output = _ROLE.search(prompt), _OUTPUT.search(prompt)
    if role is None or output is None or role[1] not in LETTERS:
        raise ValueError("no action of a writer found in the prompt")
    share = matching(read_word(output[2]), LETTERS[role[1]] * LENGTH)
    return f"The word was compared with the letter of the role.\n\nPROCESS_SCORE: {round(10 * share)}"


class _Coach(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            text = verdict(request["messages"][-1]["content"])
        except ValueError as error:
            self._reply(400, {"error": {"message": str(error)}})
            return
        message = {"role": "assistant", "content": text}
        self._reply(
            200,
            {
                "id": "scripted",
                "object": "chat.completion",
                "created": 0,
                "model": request["model"],
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            },
        )

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line each."""


@contextlib.contextmanager
def scripted_coach() -> Iterator[str]:
    """Serve the coach on a free port of loopback for as long as the context lasts. Gives its base URL."""
    server = _Coach(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run(out: Path, task: str, seed: int, extra: Sequence[str]) -> dict[str, Any]:
    """The summary of one run, from its folder if it has already been done."""
    arguments = [*TASKS[task], f"seed={seed}", *extra]
    with contextlib.ExitStack() as stack:
        if "reward.manager=coach" in arguments:
            arguments.append(f"reward.options.base_url='{stack.enter_context(scripted_coach())}'")
        return run_once(folder_of(out, task, seed), arguments)


def folder_of(out: Path, task: str, seed: int) -> Path:
    """The folder of one run."""
    return out / f"{task}-seed{seed}"


def training_success(folder: Path) -> list[float]:
    """The share of sampled trajectories that succeed, step by step."""
    return [float(record["success_rate"]) for record in read_json_lines(folder / "metrics.jsonl")]


def steps_until(curve: Sequence[float], rate: float) -> int | None:
    """The first step, from 1, whose success is at least `rate`; None if there is none."""
    return next((step for step, success in enumerate(curve, start=1) if success >= rate), None)


def report_credit(out: Path, curves: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """The second table and the picture.

    Args:
        curves: by task and seed, training success by step.
    """
    seeds = list(next(iter(curves.values())))
    lines = [
        f"\nSteps until {REACHED:.0%} of a step's trajectories succeed:\n",
        f"| task | {' | '.join(f'seed {seed}' for seed in seeds)} |",
        "|---" * (1 + len(seeds)) + "|",
    ]
    for task, by_seed in curves.items():
        reached = [steps_until(by_seed[seed], REACHED) for seed in seeds]
        cells = [
            f"more than {len(by_seed[seed])}" if one is None else str(one)
            for seed, one in zip(seeds, reached, strict=True)
        ]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(lines) + "\n")
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    for color, (task, by_seed) in zip(("tab:blue", "tab:orange"), curves.items(), strict=False):
        for curve in by_seed.values():
            axes.plot(range(1, len(curve) + 1), curve, color=color, alpha=0.35, linewidth=1)
        means = [fmean(values) for values in zip(*by_seed.values(), strict=False)]
        axes.plot(range(1, len(means) + 1), means, color=color, linewidth=2, label=f"{task}, mean of seeds")
    axes.axhline(REACHED, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("training step")
    axes.set_ylabel("success, as sampled")
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    axes.grid(alpha=0.3)
    axes.legend()
    picture = io.BytesIO()
    canvas.print_png(picture)
    write_bytes(out / "credit.png", picture.getvalue())


def main() -> None:
    """Run the tasks and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    options, extra = parser.parse_known_args()
    write_header("task")
    for task in [name for name in TASKS if name in options.only]:
        for seed in options.seeds:
            write_row(task, seed, run(options.out, task, seed, extra))
    credit = [task for task in CREDIT if task in options.only]
    if credit:
        report_credit(
            options.out,
            {
                task: {seed: training_success(folder_of(options.out, task, seed)) for seed in options.seeds}
                for task in credit
            },
        )


if __name__ == "__main__":
    main()
