"""The backward pass of reward backpropagation (MAPPA, appendix F.2): an outcome traced from action T to action 1."""

from verl_mas.rewards.coach.asking import Asker
from verl_mas.rewards.coach.client import Usage
from verl_mas.rewards.coach.ensemble import Verdict
from verl_mas.rewards.coach.parsing import SCALE
from verl_mas.rewards.coach.questions import Questions, residual_text


async def attribute(asker: Asker, questions: Questions, value: float, usage: Usage) -> list[Verdict]:
    """One coach's Delta_t of every committed action, in their order.

    A chain of questions, from action T to action 1. What is passed backward is language (F.2, "Implementation Note"):
    the last explanation, the points of every later action, and how many are left. An action about which the coach says
    nothing usable has no Delta, and what was left unexplained is passed on as it was.

    Args:
        value: v(R).
    """
    verdicts: list[Verdict] = []
    points: list[tuple[int, str, float | None]] = []
    left, explanation = SCALE * value, ""
    for step in range(len(questions.path) - 1, -1, -1):
        residual = residual_text(points, explanation) if points else None
        question = questions.backward(step, asker.settings, value=SCALE * value, unexplained=left, residual=residual)
        verdict = await asker.ask(question, usage)
        points.append((step, questions.path[step].role, verdict.value))
        if verdict.value is not None:
            left -= verdict.value
            explanation = verdict.reply
            verdict = Verdict(verdict.value / SCALE, verdict.reply)
        verdicts.append(verdict)
    return verdicts[::-1]
