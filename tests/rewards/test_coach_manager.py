"""What the coach is shown of each action, what becomes of its scores, and what they cost."""

import asyncio
import re

import pytest

from verl_mas.config.suggest import UnknownNameError
from verl_mas.rewards import RewardParts
from verl_mas.rewards.coach import BudgetExceeded, coach_metrics


def fixed(score):
    return lambda body: f"PROCESS_SCORE: {score}"


async def test_the_coach_reads_role_input_output_observation_and_problem(coach):
    info = {"tool_observation": "exit 0", "problem": "1 + 1?", "secret": "other facts are not shown beside these"}
    action = coach.said("solver", prompt="the input", response="the output", info=info)
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, roles={"solver": "Solver: solves"}, temperature=0.5, max_tokens=99)
        await manager.assign(coach.trajectory(action))
        await manager.close()
    (body,) = server.asked
    shown = {
        name: coach.field_of(body, name) for name in ("agent_input", "agent_output", "tool_observation", "problem")
    }
    assert shown == {
        "agent_input": "the input",
        "agent_output": "the output",
        "tool_observation": "exit 0",
        "problem": "1 + 1?",
    }
    assert "Solver: solves" in coach.prompt_of(body)
    assert "other facts" not in coach.prompt_of(body)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("scripted", 0.5, 99)


async def test_without_an_observation_the_other_facts_of_the_step_are_shown(coach):
    action = coach.said("solver", info={"stdout": "4", "ground_truth": "5", "task_type": "sums"})
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server)
        await manager.assign(coach.trajectory(coach.said("first"), action, coach.said("last")))
        await manager.close()
    assert [coach.field_of(body, "tool_observation") for body in server.asked] == [None, '{"stdout": "4"}', None]
    assert coach.field_of(server.asked[1], "problem") == "you are the first, turn 0"


@pytest.mark.parametrize(
    ("last_role", "knows"), [(None, {("verifier", 1, 0), ("verifier", 1, 1)}), ("solver", {("solver", 1, 0)})]
)
async def test_only_the_last_action_of_the_last_role_is_judged_with_the_ground_truth(coach, last_role, knows):
    actions = [
        coach.said("solver", 0),
        coach.said("verifier", 0),
        coach.said("solver", 1),
        coach.said("verifier", 1, candidate=0),
        coach.said("verifier", 1, candidate=1, chosen=False),  # an alternative to the same last decision
    ]
    for action in actions:
        action.info = {"ground_truth": "forty-two"}
        action.response = f"{action.role} {action.turn} {action.candidate}"
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, last_role=last_role)
        await manager.assign(coach.trajectory(*actions))
        await manager.close()
    shown = {
        coach.field_of(b, "agent_output")
        for b in server.asked
        if coach.field_of(b, "ground_truth_answer") == "forty-two"
    }
    assert shown == {f"{role} {turn} {candidate}" for role, turn, candidate in knows}
    others = [body for body in server.asked if coach.field_of(body, "agent_output") not in shown]
    assert len(others) == len(actions) - len(shown)
    assert not any("forty-two" in coach.prompt_of(body) for body in others)


async def test_candidates_that_were_not_chosen_are_scored_as_well(coach):
    actions = [coach.said("solver", candidate=n, chosen=n == 1, response=str(n)) for n in range(3)]
    async with coach.Server(lambda body: f"PROCESS_SCORE: {coach.field_of(body, 'agent_output')}") as server:
        manager = coach.manager(server)
        await manager.assign(coach.trajectory(*actions))
        await manager.close()
    assert [action.reward for action in actions] == [0.0, 0.1, 0.2]
    assert [action.info["coach"]["score"] for action in actions] == [0.0, 0.1, 0.2]


def test_until_the_coach_has_spoken_the_team_score_is_the_reward(coach):
    manager = coach.manager(type("Nowhere", (), {"url": "http://127.0.0.1:9/v1"}))
    assert manager.score("solver", RewardParts(team=0.75)).value == 0.75


async def test_all_actions_are_asked_about_at_once(coach):
    async def answer(body):
        if len(server.asked) == 20:
            everybody.set()
        await everybody.wait()
        return "PROCESS_SCORE: 8"

    everybody = asyncio.Event()
    async with coach.Server(answer) as server:
        manager = coach.manager(server)
        await manager.assign(coach.trajectory(*[coach.said("solver", turn) for turn in range(20)]))
        await manager.close()
    assert server.most == 20


async def test_no_more_requests_are_under_way_than_the_limit_says(coach, tmp_path):
    async def answer(body):
        if len(server.asked) >= 3:
            three.set()
        await three.wait()
        return "PROCESS_SCORE: 8"

    three = asyncio.Event()
    async with coach.Server(answer) as server:
        manager = coach.manager(server, max_concurrency=6)
        manager.open(tmp_path, workers=2)
        await manager.assign(coach.trajectory(*[coach.said("solver", turn) for turn in range(12)]))
        await manager.close()
    assert server.most == 3


async def test_validation_costs_nothing_unless_it_is_asked_for(coach):
    async with coach.Server(fixed(8)) as server:
        for scored in (False, True):
            action = coach.said("solver")
            manager = coach.manager(server, score_validation=scored)
            await manager.assign(coach.trajectory(action, split="val"))
            await manager.close()
            assert action.reward == (0.8 if scored else 0.5)
    assert len(server.asked) == 1


async def test_a_json_endpoint_is_held_to_a_schema_and_the_reply_read_as_json(coach):
    action = coach.said("solver", response='{"process_score": 10}')
    async with coach.Server(lambda body: '{"reasoning": "PROCESS_SCORE: 10", "process_score": 4}') as server:
        manager = coach.manager(server, reply_format="json_schema")
        await manager.assign(coach.trajectory(action))
        await manager.close()
    assert action.reward == 0.4
    schema = server.asked[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["process_score"] == {"type": "integer", "minimum": 0, "maximum": 10}
    assert schema["required"] == ["reasoning", "process_score"]
    assert "PROCESS_SCORE" not in coach.prompt_of(server.asked[0])


async def test_the_key_comes_from_the_variable_that_the_option_names(coach, monkeypatch):
    monkeypatch.setenv("COACH_KEY", "secret")
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, api_key_env="COACH_KEY", extra_body={"top_k": 1})
        await manager.assign(coach.trajectory(coach.said("solver")))
        await manager.close()
    assert server.keys == ["Bearer secret"]
    assert server.asked[0]["top_k"] == 1


async def test_a_template_of_ones_own_shows_the_facts_it_names(coach):
    prompt = "{agent_role} {agent_input} {agent_output} {files} {output_format}"
    action = coach.said("solver", info={"files": ["a.pkl"]})
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, prompt=prompt, facts=["files"])
        await manager.assign(coach.trajectory(action))
        assert coach.field_of(server.asked[0], "files") == '["a.pkl"]'
        with pytest.raises(
            UnknownNameError, match="unknown fact in the info of the environment's step 'files'; did you"
        ):
            await manager.assign(coach.trajectory(coach.said("solver", info={"file": []})))
        await manager.close()


async def test_a_role_that_the_options_do_not_describe_is_an_error(coach):
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, roles={"solver": "Solver"})
        with pytest.raises(UnknownNameError, match="'solvr'; did you mean 'solver'"):
            await manager.assign(coach.trajectory(coach.said("solvr")))
        await manager.close()


# cache


async def test_a_resumed_run_asks_no_second_time_about_a_known_action(coach, tmp_path):
    rewards = []
    for url_changes in range(2):  # another process would find the same folder, at another port of the endpoint
        async with coach.Server(fixed(8 - url_changes)) as server:
            actions = [coach.said("solver", turn) for turn in range(3)]
            manager = coach.manager(server, cache=True)
            manager.open(tmp_path)
            whole = coach.trajectory(*actions)
            await manager.assign(whole)
            await manager.close()
        rewards.append([action.reward for action in actions])
        assert len(server.asked) == (0 if url_changes else 3)
        assert whole.info["coach"] == {
            "calls": len(server.asked),
            "known": 3 - len(server.asked),
            "tokens": 30 * (not url_changes),
        }
    assert rewards == [[0.8] * 3] * 2
    assert (tmp_path / "coach").is_dir()


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"temperature": 1.0}, {"template": "mathchat"}, {"roles": {"solver": "S"}}]
)
async def test_what_changes_the_question_makes_it_a_new_one(coach, tmp_path, change):
    async with coach.Server(fixed(8)) as server:
        for options in ({}, change):
            manager = coach.manager(server, cache=True, cache_dir=str(tmp_path), **options)
            await manager.assign(coach.trajectory(coach.said("solver")))
            await manager.close()
    assert len(server.asked) == 2


async def test_a_reply_without_a_score_is_not_kept(coach, tmp_path):
    replies = iter(["no score", "PROCESS_SCORE: 8"])
    async with coach.Server(lambda body: next(replies)) as server:
        for masked in (True, False):
            action = coach.said("solver")
            manager = coach.manager(server, cache=True, cache_dir=str(tmp_path), attempts=1)
            await manager.assign(coach.trajectory(action))
            await manager.close()
            assert action.masked is masked


async def test_equal_actions_at_the_same_time_are_one_question(coach):
    actions = [coach.said("solver", candidate=n) for n in range(4)]
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server)
        await manager.assign(coach.trajectory(*actions))
        await manager.close()
    assert [action.reward for action in actions] == [0.8] * 4
    assert len(server.asked) == 1


def test_one_manager_works_in_one_event_loop_after_another(coach):
    async def once():
        async with coach.Server(fixed(8)) as server:
            manager._coaches = coach.manager(server)._coaches
            action = coach.said("solver", response=server.url)
            await manager.assign(coach.trajectory(action))
            return action.reward

    manager = coach.manager(type("Nowhere", (), {"url": "http://127.0.0.1:9/v1"}))
    assert [asyncio.run(once()), asyncio.run(once())] == [0.8, 0.8]


# budgets


async def test_the_budget_of_calls_is_never_exceeded_and_its_end_ends_the_run(coach):
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, max_calls=3)
        with pytest.raises(BudgetExceeded, match=r"another call of the coach is needed after 3; .*max_calls"):
            await manager.assign(coach.trajectory(*[coach.said("solver", turn) for turn in range(5)]))
        await manager.close()
    assert len(server.asked) <= 3


async def test_the_budget_of_tokens_ends_the_run_at_the_next_call(coach):
    async with coach.Server(fixed(8), tokens=60) as server:
        manager = coach.manager(server, max_total_tokens=100)
        for turn in range(2):
            await manager.assign(coach.trajectory(coach.said("solver", turn)))
        with pytest.raises(BudgetExceeded, match=r"has used 120 tokens; reward\.options\.max_total_tokens is 100"):
            await manager.assign(coach.trajectory(coach.said("solver", 2)))
        await manager.close()
    assert len(server.asked) == 2


@pytest.mark.parametrize("kept", [True, False])
async def test_budgets_hold_over_all_workers_and_resumes(coach, tmp_path, kept):
    async with coach.Server(fixed(8)) as server:
        managers = [coach.manager(server, cache=kept, max_calls=3) for _ in range(2)]
        for manager in managers:
            manager.open(tmp_path, workers=2)
        for turn in range(3):
            await managers[turn % 2].assign(coach.trajectory(coach.said("solver", turn)))
        with pytest.raises(BudgetExceeded):
            await managers[1].assign(coach.trajectory(coach.said("solver", 3)))
        for manager in managers:
            await manager.close()
        assert len(server.asked) == 3


async def test_known_answers_cost_nothing(coach):
    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, max_calls=1)
        for _ in range(3):
            await manager.assign(coach.trajectory(coach.said("solver")))
        await manager.close()
        assert manager.statistics()["coach/calls"] == 1
        assert manager.statistics()["coach/known"] == 2


# ensembles


ENSEMBLE = [{"name": name, "model": name} for name in ("a", "b", "c")]


@pytest.mark.parametrize(("how", "reward"), [("mean", (0.1 + 0.2 + 0.9) / 3), ("median", 0.2)])
async def test_an_ensemble_gives_the_mean_or_median(coach, how, reward):
    scores = {"a": 1, "b": 2, "c": 9}
    action = coach.said("solver")
    async with coach.Server(lambda body: f"PROCESS_SCORE: {scores[body['model']]}") as server:
        manager = coach.manager(server, ensemble=ENSEMBLE, aggregate=how)
        await manager.assign(coach.trajectory(action))
        await manager.close()
    assert action.reward == pytest.approx(reward)
    assert action.info["coach"]["by_coach"] == {"a": 0.1, "b": 0.2, "c": 0.9}


async def test_an_ensemble_uses_the_scores_that_there_are_and_masks_without_any(coach):
    silent = {"a", "c"}
    async with coach.Server(lambda body: "no" if body["model"] in silent else "PROCESS_SCORE: 4") as server:
        manager = coach.manager(server, ensemble=ENSEMBLE)
        first, second = coach.said("solver"), coach.said("solver", 1)
        await manager.assign(coach.trajectory(first))
        silent.add("b")
        await manager.assign(coach.trajectory(second))
        await manager.close()
    assert first.reward == 0.4
    assert second.masked
    assert re.match("a: .*; b: .*; c: ", second.info["coach"]["cause"])


# statistics


async def test_scores_are_counted_by_role_and_type_of_task(coach):
    scores = {"x": 2, "y": 4, "z": 9}
    whole = coach.trajectory(
        coach.said("solver", 0, "x", info={"task_type": "classification"}),
        coach.said("solver", 1, "y", info={"task_type": "regression"}),
        coach.said("solver", 2, "?", info={"task_type": "regression"}),
        coach.said("checker", 3, "z"),
    )
    async with coach.Server(
        lambda body: f"PROCESS_SCORE: {scores.get(coach.field_of(body, 'agent_output'), 'none')}"
    ) as server:
        manager = coach.manager(server, attempts=1)
        await manager.assign(whole)
        await manager.close()
    expected = {
        "coach/score/solver": pytest.approx(0.3),
        "coach/score_std/solver": pytest.approx(0.1),
        "coach/score/solver/classification": pytest.approx(0.2),
        "coach/score/solver/regression": pytest.approx(0.4),
        "coach/unscored/solver/regression": 1.0,
        "coach/unscored/solver/classification": 0.0,
        "coach/unscored/solver": 1.0,
        "coach/score/checker": pytest.approx(0.9),
        "coach/unscored/checker": 0.0,
        "coach/calls": 4.0,
        "coach/tokens": 40.0,
        "coach/known": 0.0,
        "coach/failure_rate": 0.25,
    }
    for metrics in (manager.statistics(), coach_metrics([whole])):
        assert {name: metrics[name] for name in expected} == expected


def test_a_step_that_no_coach_scored_has_no_metrics_of_it(coach):
    assert coach_metrics([coach.trajectory(coach.said("solver"))]) == {}


async def test_on_request_the_coach_is_told_its_own_statistics_which_do_not_make_known_actions_new(coach):
    def action(turn):
        return coach.said("solver", turn, info={"task_type": "regression"})

    async with coach.Server(fixed(8)) as server:
        manager = coach.manager(server, feedback=True)
        for turn in (0, 1, 0):
            await manager.assign(coach.trajectory(action(turn)))
        await manager.close()
    first, second = map(coach.prompt_of, server.asked)
    assert "So far you have scored" not in first
    assert "- solver, regression tasks: 1 actions, mean 8.00, standard deviation 0.00" in second
