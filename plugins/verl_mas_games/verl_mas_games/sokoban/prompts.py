"""The prompt templates of the two Sokoban roles, in two styles.

`TEXT` is for language models. The AT-GRPO paper has Sokoban among its tasks but prints no Sokoban prompt, so these are
its Plan-Path prompts (appendix A.3: Path Coder and Plan Agent, first turn and refinement) with the goal of Sokoban in
place of path planning. A template is fixed, so what differs between the first turn and later ones is filled in:
`{instructions}`, `{requirements}` and `{history}`. The history gives one entry per turn, not one per move.

`COMPACT` is for the embedded character model: the inner cells of the grid, a role marker, for the planner the tool's
proposal, and `>`. The answer is bare moves such as `URRD`. Border walls are always there, so they are left out.
"""

from collections.abc import Mapping

COMPACT: Mapping[str, str] = {"tool": "{grid}\nT>", "planner": "{grid}\nP{proposal}>"}

TEXT: Mapping[str, str] = {
    "tool": "{instructions}\n\nTask:\n{task}\n\nEnvironment:\n{grid}\n\n{history}{requirements}",
    "planner": (
        "You are a planning and reasoning agent. {instructions}\n\nTask:\n{task}\n\nEnvironment:\n{grid}\n\n"
        "Tool Agent's latest output:\n"
        "- Response:\n{tool_response}\n"
        "- Execution output:\n{tool_output}\n"
        "- Proposed action: {tool_action}\n\n"
        "{history}{requirements}"
    ),
}

TASK = """\
Solve the Sokoban puzzle: push every box onto a goal. Each move takes the player one cell Up (U), Down (D), Left (L) or
Right (R). Moving into a box pushes it one cell further, if the cell beyond it is free; boxes cannot be pulled, and only
one box can be pushed at a time. A box pushed into a corner that is not a goal is stuck for ever.
Symbols: # wall, - floor, . goal, $ box, * box on a goal, @ player, + player on a goal."""

LIMIT = "\nOnly the first {max_actions} moves of your list are executed in this turn."

HISTORY = "Trajectory/history (previous attempts and the states they led to):\n{steps}\n\n"

TOOL_CODE_FIRST = """\
You are an AI assistant designed to be helpful. Utilize your programming expertise to address the task. Propose Python \
code (within a single python code block) for the user to run. Ensure each response contains only ONE code block. Use \
the 'print' function to output the action list that pushes every box onto a goal. You may output the full action list \
if you can solve the puzzle, or a partial list if uncertain."""
TOOL_CODE_REFINE = "Refine your Python solution to produce a correct, executable action list."

TOOL_CODE_REQUIREMENTS = """\
Formatting requirements:
* Begin the Python block with ```python and end with ```.
* The program's output IS the action list (e.g., [U,R,D,L]).
* Print ONLY the action list (no extra text)."""
TOOL_CODE_REFINE_REQUIREMENTS = """\
Requirements:
* Output must be an action list that pushes every box onto a goal without violating constraints (no walking or pushing \
into walls, no pushing a box into another).
* If certain, print the full list; if uncertain, print a safe partial prefix.
* Single python code block only; program output IS the action list.
* Begin with ```python and end with ```; print ONLY the action list (e.g., [U,R,D,L]).
Respond in the format:
**Code:**
```python
# corrected code here
# last line prints ONLY the action list
```"""

TOOL_ACTIONS_FIRST = """\
You are an AI assistant designed to be helpful. Propose the action list that pushes every box onto a goal. You may \
give the full action list if you can solve the puzzle, or a partial list if uncertain."""
TOOL_ACTIONS_REFINE = "Refine your solution to produce a correct, executable action list."
TOOL_ACTIONS_REQUIREMENTS = """\
Requirements:
* The list must not violate constraints (no walking or pushing into walls, no pushing a box into another).
* If certain, give the full list; if uncertain, give a safe partial prefix.
FORMATTING IS MANDATORY. Give the action list AFTER the line that begins with ####. Example:
#### [U,R,D,L]"""

PLANNER_FIRST_CODE = """\
You will receive:
* The original task description
* The Code Agent's (Tool Agent's) code
* The code execution output
Your job is to reason carefully, decide the final action list, and format your response EXACTLY as specified."""
PLANNER_FIRST_ACTIONS = """\
You will receive:
* The original task description
* The Tool Agent's proposed action list
Your job is to reason carefully, decide the final action list, and format your response EXACTLY as specified."""
PLANNER_REFINE = "Decide the final action list from here, and format your response EXACTLY as specified."

PLANNER_FIRST_REQUIREMENTS = """\
Instructions:
* Read the task, inspect the tool's response, and verify the execution output against the task requirements and \
environment constraints (walls, boxes, goals).
* If the output is correct and sufficient, adopt it.
* Otherwise, improve or override it with your own reasoning.
* Keep reasoning concise but explicit: justify why the final action is correct.
FORMATTING IS MANDATORY. Give the final action list AFTER the line that begins with ####. Example:
#### [U,R,D,L]"""
PLANNER_REFINE_REQUIREMENTS = """\
Instructions:
* Verify feasibility of the proposed action sequence step by step.
* If it collides, pushes a box into a wall or another box, loops, or fails to solve the puzzle, correct it (you may \
shorten, extend, or replace the sequence).
* Prefer the simplest valid plan; if uncertain, provide the best safe prefix and explain briefly.
* Keep reasoning concise but explicit: justify why the final action is correct.
FORMATTING IS MANDATORY. Give the FINAL action list AFTER the line that begins with ####. Example:
#### [U,R,D,L]"""
