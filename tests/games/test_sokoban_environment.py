"""The environment of one level: who moves what, what the prompts show, and that copies are independent."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_mas.config.suggest import UnknownNameError
from verl_mas.sandbox import BubblewrapSandbox, SandboxResult, SandboxUnavailable
from verl_mas.workflow import Task, check_prompts, render
from verl_mas_games.sokoban.environment import Sokoban, SokobanEnvironment
from verl_mas_games.sokoban.game import parse_state
from verl_mas_games.sokoban.generator import content_digest
from verl_mas_games.sokoban.solver import solve

OPEN = "######\n#----#\n#-@$.#\n#----#\n#----#\n######"
SHIFTED = "######\n#-@--#\n#--$.#\n#----#\n#----#\n######"
BY_A_CORNER = "######\n#-$@-#\n#---.#\n######"
SOLVED = "######\n#----#\n#--@*#\n#----#\n#----#\n######"


@dataclass
class FakeSandbox:
    """Answers every program with one result, and remembers the programs."""

    result: SandboxResult
    available: bool = True
    programs: list[str] = field(default_factory=list)

    def check(self) -> None:
        if not self.available:
            raise SandboxUnavailable("bwrap is missing")

    def run_python(self, code: str) -> SandboxResult:
        self.programs.append(code)
        return self.result


def printed(stdout: str, exit_code: int | None = 0, timed_out: bool = False) -> FakeSandbox:
    return FakeSandbox(SandboxResult(stdout, "", exit_code, timed_out, truncated=False, seconds=0.1))


def game(level: str = OPEN, **options) -> SokobanEnvironment:
    state = parse_state(level)
    family = Sokoban(**({"style": "compact", "tool": "actions"} | options))
    return family.environment(Task("train-0", content_digest(state), {"level": state.render()}))


def prompt(environment: SokobanEnvironment, role: str, **options) -> str:
    family = Sokoban(**({"style": "text", "tool": "actions"} | options))
    return render(family.prompts[role], environment.observe(role), role)


def test_the_tools_proposal_earns_its_reward_and_moves_nothing() -> None:
    environment = game()
    outcome = environment.step("tool", "R")
    assert environment.state.render() == OPEN
    assert not environment.done
    assert outcome.parts.team == 1.0
    assert outcome.parts.local_score == pytest.approx(1.0)
    assert outcome.info["solved"] is True


def test_the_planners_list_moves_the_state_and_ends_the_turn() -> None:
    environment = game()
    environment.step("tool", "RRR")
    assert environment.observe("planner")["proposal"] == "RRR"
    outcome = environment.step("planner", "LU")
    assert environment.state.render() == "######\n#@---#\n#--$.#\n#----#\n#----#\n######"
    assert environment.observe("planner")["proposal"] == ""
    assert outcome.parts.team == 0.0
    assert outcome.info == {
        "parsed": True,
        "actions": "LU",
        "legal": [True, True],
        "boxes_on_goals": 0,
        "potential": -1,
        "deadlocked": False,
        "solved": False,
    }


def test_a_solved_level_is_done_and_a_success() -> None:
    environment = game()
    environment.step("planner", "RUUU")
    assert environment.state.render() == SOLVED
    assert environment.done
    assert environment.success


def test_a_lost_level_is_done_unless_told_otherwise() -> None:
    for done_on_deadlock in (True, False):
        environment = game(BY_A_CORNER, done_on_deadlock=done_on_deadlock)
        environment.step("planner", "L")
        assert environment.done is done_on_deadlock
        assert not environment.success


def test_illegal_moves_are_skipped_and_said() -> None:
    environment = game()
    outcome = environment.step("planner", "UUR")
    assert outcome.info["legal"] == [True, False, True]
    assert environment.state.render() == "######\n#--@-#\n#--$.#\n#----#\n#----#\n######"


def test_only_the_first_max_actions_moves_count() -> None:
    environment = game(max_actions=2)
    assert environment.step("tool", "UURR").info["actions"] == "UU"
    assert environment.observe("planner")["proposal"] == "UU"
    assert environment.step("planner", "UDUUU").info["actions"] == "UD"
    assert environment.state.render() == OPEN


@pytest.mark.parametrize(
    "response", ["", "   ", "urdl", "R R", "solve it", "#### [R]", "P>R", "<eos>", "R\0", "\ud800"]
)
def test_malformed_compact_text_changes_nothing_and_earns_nothing(response: str) -> None:
    for role in ("tool", "planner"):
        environment = game()
        outcome = environment.step(role, response)
        assert outcome.parts.mask * outcome.parts.local_score == 0.0
        assert outcome.parts.team == 0.0
        assert outcome.info["actions"] == ""
        assert environment.state.render() == OPEN


@pytest.mark.parametrize(
    "response",
    ["", "[R]", "#### R", "#### [R] now", "#### [r]", "#### __import__('os')", "{grid} {0} #### {}", "####" * 5000],
)
def test_malformed_prose_changes_nothing_and_earns_nothing(response: str) -> None:
    for role in ("tool", "planner"):
        environment = game(style="text")
        outcome = environment.step(role, response)
        assert outcome.info["parsed"] is False
        assert outcome.parts.mask * outcome.parts.local_score == 0.0
        assert environment.state.render() == OPEN
        assert environment.observe("tool")
        assert environment.observe("planner")


def test_an_empty_list_is_parsed_and_earns_nothing() -> None:
    environment = game(style="text")
    outcome = environment.step("planner", "I give up. #### []")
    assert outcome.info["parsed"] is True
    assert outcome.parts.local_score == 0.0


def test_text_answers_are_read_after_the_last_marker() -> None:
    environment = game(style="text")
    environment.step("planner", "#### [L]\nBetter:\n#### [R]")
    assert environment.success


@given(st.sampled_from(["tool", "planner"]), st.text() | st.text(alphabet="UDLR", max_size=12), st.booleans())
def test_no_response_raises_and_every_outcome_can_be_logged(role: str, response: str, compact: bool) -> None:
    environment = game(style="compact" if compact else "text")
    outcome = environment.step(role, response)
    assert json.loads(json.dumps(outcome.info)) == outcome.info


@given(st.lists(st.tuples(st.sampled_from(["tool", "planner"]), st.text(alphabet="UDLRx", max_size=6)), max_size=8))
def test_what_happens_to_a_copy_never_reaches_the_original(steps: list[tuple[str, str]]) -> None:
    original = game(style="compact")
    original.step("tool", "U")
    before = (original.state, original.proposal, original.history, original.observe("planner"))
    copied = original.copy()
    assert copied.observe("planner") == original.observe("planner")
    for role, response in steps:
        copied.step(role, response)
    assert (original.state, original.proposal, original.history, original.observe("planner")) == before


@given(st.lists(st.tuples(st.sampled_from(["tool", "planner"]), st.text(alphabet="UDLR", max_size=6)), max_size=8))
def test_a_copy_that_is_treated_alike_stays_alike(steps: list[tuple[str, str]]) -> None:
    original = game(style="text")
    copied = original.copy()
    for role, moves in steps:
        response = f"#### [{','.join(moves)}]"
        assert copied.step(role, response) == original.step(role, response)
    assert copied.observe("planner") == original.observe("planner")


def test_compact_prompts_are_grid_marker_and_proposal() -> None:
    family = Sokoban(style="compact", tool="actions")
    environment = game()
    assert render(family.prompts["tool"], environment.observe("tool"), "tool") == "----\n-@$.\n----\n----\nT>"
    environment.step("tool", "RD")
    planner = render(family.prompts["planner"], environment.observe("planner"), "planner")
    assert planner == "----\n-@$.\n----\n----\nPRD>"


def test_the_first_prompts_are_those_of_the_papers_first_turn() -> None:
    environment = game(style="text", tool="code", sandbox=printed("[R]"))
    tool = prompt(environment, "tool")
    assert "Propose Python code (within a single python code block)" in tool
    assert "Ensure each response contains only ONE code block." in tool
    assert OPEN in tool
    assert "Refine" not in tool
    environment.step("tool", "Here:\n```python\nprint('[R]')\n```")
    planner = prompt(environment, "planner")
    assert "The Code Agent's (Tool Agent's) code" in planner
    assert "print('[R]')" in planner
    assert "- Execution output:\n[R]" in planner
    assert "- Proposed action: [R]" in planner
    assert "FORMATTING IS MANDATORY" in planner
    assert "Trajectory/history" not in tool + planner


def test_later_prompts_ask_to_refine_and_show_what_happened() -> None:
    environment = game(style="text", tool="code", sandbox=printed("[U,U]"))
    environment.step("tool", "```python\nprint('[U,U]')\n```")
    environment.step("planner", "#### [U,U]")
    tool, planner = prompt(environment, "tool"), prompt(environment, "planner")
    assert "Refine your Python solution" in tool
    assert "Verify feasibility of the proposed action sequence step by step." in planner
    for text in (tool, planner):
        assert "print('[U,U]')" in text
        assert "The 1-th final action list is [U,U]." in text
        assert "Illegal moves in it, which changed nothing: number 2." in text
        assert f"The 1-th state is\n{SHIFTED}" in text
    assert "- Proposed action: []" in planner  # the tool has not spoken in this turn


def test_the_tool_that_gives_actions_is_not_asked_for_code() -> None:
    environment = game(style="text")
    assert "Python" not in prompt(environment, "tool") + prompt(environment, "planner")


def test_the_limit_on_actions_is_told() -> None:
    assert "Only the first 5 moves" in prompt(game(style="text", max_actions=5), "tool")
    assert "Only the first" not in prompt(game(style="text"), "tool")


@pytest.mark.parametrize(
    "options",
    [
        {"style": "compact", "tool": "actions"},
        {"style": "text", "tool": "actions"},
        {"style": "text", "tool": "code", "sandbox": printed("[]")},
    ],
)
def test_every_placeholder_is_observed(options) -> None:
    family = Sokoban(**options)
    assert set(check_prompts(("tool", "planner"), family)) == {"tool", "planner"}


@pytest.mark.parametrize(
    ("sandbox", "response", "actions", "output"),
    [
        (printed("[R]\n"), "```python\nprint('[R]')\n```", "R", "[R]"),
        (printed("['R', 'L']"), "```python\nx\n```", "R", "['R', 'L']"),
        (printed("[U,R]\n[R]"), "```python\nx\n```", "", "[U,R]\n[R]"),
        (printed("all tests passed"), "```python\nx\n```", "", "all tests passed"),
        (printed(""), "```python\nx\n```", "", "(nothing printed)"),
        (printed("[R]", exit_code=1), "```python\nx\n```", "", "(failed with exit code 1)"),
        (printed("[R]", exit_code=None, timed_out=True), "```python\nx\n```", "", "(stopped at the time limit)"),
        (printed("[R]"), "no code", "", "(no single Python code block found)"),
    ],
)
def test_the_tools_program_proposes_what_it_prints(
    sandbox: FakeSandbox, response: str, actions: str, output: str
) -> None:
    environment = game(style="text", tool="code", sandbox=sandbox)
    outcome = environment.step("tool", response)
    assert outcome.info["actions"] == actions
    assert environment.observe("planner")["tool_output"] == output
    assert outcome.parts.mask == float(bool(actions))
    assert sandbox.programs == ([] if response == "no code" else [response.split("```")[1].removeprefix("python\n")])


def test_a_long_output_is_cut_in_the_prompt() -> None:
    environment = game(style="text", tool="code", sandbox=printed("x" * 50_000))
    environment.step("tool", "```python\nx\n```")
    assert len(environment.observe("planner")["tool_output"]) == 1000


def test_code_is_refused_where_there_is_no_sandbox() -> None:
    sandbox = printed("[R]")
    sandbox.available = False
    with pytest.raises(SandboxUnavailable, match="bwrap is missing"):
        Sokoban(style="text", tool="code", sandbox=sandbox)


def test_code_runs_in_bubblewrap_by_default() -> None:
    try:
        BubblewrapSandbox().check()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox on this machine: {error}")
    environment = game(style="text", tool="code", sandbox=None)
    outcome = environment.step("tool", "```python\nprint(['U', 'D'] + ['R'])\n```")
    assert outcome.info["actions"] == "UDR"
    assert outcome.info["solved"] is True
    assert environment.step("tool", "```python\nraise SystemExit(3)\n```").info["exit_code"] == 3


def test_only_games_without_programs_run_on_the_event_loop() -> None:
    assert game().inline
    assert not game(style="text", tool="code", sandbox=printed("")).inline


def test_an_unknown_role_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="planner"):
        game().observe("planer")
    with pytest.raises(UnknownNameError, match="tool"):
        game().step("tol", "R")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "compct"}, "compact"),
        ({"tool": "action"}, "actions"),
        ({"list_score": "al"}, "all"),
        ({"list_score": "slots"}, "max_actions"),
        ({"style": "compact", "tool": "code"}, "style=text"),
        ({"max_actions": 0}, "max_actions"),
        ({"time_limit": 0}, "time_limit"),
        ({"walls": 99}, "do not fit"),
        ({"train_max_length": 2}, "min_length"),
    ],
)
def test_wrong_options_are_errors(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sokoban(**({"tool": "actions"} | options))


def test_tasks_are_solvable_levels_that_can_be_logged() -> None:
    family = Sokoban(style="compact", tool="actions")
    task = family.task("val", 3)
    assert task.id == "val-3"
    assert json.loads(json.dumps(task.payload)) == task.payload
    solution = solve(parse_state(task.payload["level"]))
    assert solution is not None
    assert len(solution) == task.payload["solution_length"]
    environment = family.environment(task)
    environment.step("planner", solution)
    assert environment.success


def test_the_seed_and_nothing_else_decides_the_tasks() -> None:
    first, again, other = (Sokoban(tool="actions", seed=seed) for seed in (1, 1, 2))
    assert [first.task("train", index) for index in range(5)] == [again.task("train", index) for index in range(5)]
    assert first.task("train", 0) != other.task("train", 0)


def test_training_levels_may_have_a_difficulty_of_their_own() -> None:
    family = Sokoban(tool="actions", min_length=6, max_length=9, train_min_length=3, train_max_length=4)
    assert all(3 <= family.task("train", index).payload["solution_length"] <= 4 for index in range(20))
    assert all(6 <= family.task("val", index).payload["solution_length"] <= 9 for index in range(20))


def test_training_and_validation_tasks_are_disjoint() -> None:
    family = Sokoban(tool="actions", walls=0)  # few levels, so that a shared one would show
    family.check(num_train=400, num_val=400)
    train = {family.task("train", index).digest for index in range(400)}
    assert not train & {family.task("val", index).digest for index in range(400)}


def test_a_task_with_another_content_than_its_digest_says_is_an_error() -> None:
    with pytest.raises(ValueError, match="digest"):
        Sokoban(tool="actions").environment(Task("train-0", "0" * 64, {"level": OPEN}))


def test_an_unknown_split_is_an_error() -> None:
    with pytest.raises(UnknownNameError, match="val"):
        Sokoban(tool="actions").task("vale", 0)  # type: ignore[arg-type]
