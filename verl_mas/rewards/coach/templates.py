"""The coach's prompt templates: the paper's two, as they stand in its appendices, and a general one."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from verl_mas.rewards.coach.parsing import PROCESS_SCORE


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with `{placeholders}`, and how it asks for the verdict in words.

    Attributes:
        text: the prompt. output_format: fills its `{output_format}` unless the reply is to be JSON.
        facts: placeholders that the environment's step must provide, by the same names in `info`.
    """

    text: str
    output_format: str
    facts: tuple[str, ...] = ()


GENERAL_FORMAT = f"""\
First evaluate the action in a few sentences. Then end your reply with exactly one line in this format:

{PROCESS_SCORE}: [0 to 10]"""

GENERAL = """\
You are evaluating a specific agent in a multiagent system that collaboratively solves a problem. Its agents:

{team}

Problem that the overall system is solving:
{problem}

Current agent being evaluated:
{agent_role}

What the agent received as input:
{agent_input}

What the agent outputted:
{agent_output}

Environment feedback for the agent's tool call (if applicable):
{tool_observation}

Ground truth answer (if applicable):
{ground_truth_answer}

Evaluate the agent's decision quality: given the agent's role and the information it had as input, how helpful is its
output towards the overall system's success? If something failed because of what another agent did or left out, that is
not this agent's fault; if what it left out made a later agent fail, it is.

Strictly assign a score from 0 (terrible) to 10 (perfect).

{output_format}"""

# MAPPA, appendix B.4
MATHCHAT = """\
You are evaluating a specific agent in a multiagent system that collaboratively solves a math competition problem. The \
system has 3 specialized agents working sequentially:

1. **Problem Solver**: Reasons through the problem step-by-step
2. **Code Executor**: Writes and executes Python code to verify/compute solutions
3. **Verifier**: Synthesizes the code executor's output and provides the final answer.

The success of the overall system is determined by the Verifier's final answer.

Workflow Constraints:

- Each agent has a 4K token output limit. Outputs beyond this are truncated.
- All agents can see the original problem statement.

When evaluating, consider whether the agent:

- (IMPORTANT) Performed well given their role and the information provided
- Stayed within output length limit

Problem that the overall system is solving:
{problem}

Current agent being evaluated:
{agent_role}

What the agent received as input:
{agent_input}

What the agent outputted:
{agent_output}

Environment feedback for the agent's tool call (if applicable):
{tool_observation}

Ground truth answer (if applicable):
{ground_truth_answer}

Evaluate the agent's decision quality based on:

- Given the agent's role and the information it had as input, how helpful is its output towards the overall system's \
success?
- For Code Executor: Did it output code in the right format? Is the code syntactically correct and does it solve the \
problem?
- For Verifier: Did it correctly synthesize the information and output the final answer?

Strictly assigns a score from 0 (terrible) to 10 (perfect).

{output_format}"""

MATHCHAT_FORMAT = f"""\
Additionally, if ground truth is provided (not "N/A") and the agent is "Verifier", you MUST also verify answer \
correctness:

Provide binary correctness as:

- ANSWER_CORRECT: 1 (if the Verifier's final answer matches the ground truth)
- ANSWER_CORRECT: 0 (if the Verifier's final answer is incorrect)

Structure your output in the following format exactly:

{PROCESS_SCORE}: [0 to 10]
ANSWER_CORRECT: [0 or 1, but only if ground truth provided and agent is Verifier]"""

# MAPPA, appendix C.4: "key excerpts", to which the fields that they speak of are added
DSBENCH = """\
You are evaluating a specific agent in a multiagent data science system. The system has 3 specialized agents:

1. **Data Engineer**: Performs EDA, data cleaning, feature engineering
   - MUST save: X_train.pkl, y_train.pkl, X_test.pkl
2. **Modeler**: Selects algorithms, trains models
   - MUST save: model.pkl
3. **Analyst**: Generates predictions, creates submission
   - MUST save: submission.csv (FINAL DELIVERABLE)

CRITICAL: OUTCOME-BASED ROOT CAUSE ANALYSIS

If ground_truth_answer shows "ERROR: No predictions found" or similar failure, this means submission.csv was NOT \
created. This is a PIPELINE FAILURE.

You MUST perform root cause analysis:

1. **Check "FILES SAVED BY PREVIOUS AGENTS"**:
   - Did Data Engineer save X_test.pkl?
   - Did Modeler save model.pkl?
   - If these files are missing, the UPSTREAM AGENT is at fault!
2. **Check "tool_observation" for errors**:
   - FileNotFoundError for X_test.pkl -> Data Engineer's fault
   - FileNotFoundError for model.pkl -> Modeler's fault
   - KeyError, TypeError -> Likely Analyst's own bug
3. **Assign blame to the responsible agent:**
   - Data Engineer's fault if: X_test.pkl is NOT in "FILES SAVED BY PREVIOUS AGENTS"
   - Modeler's fault if: model.pkl is NOT in "FILES SAVED BY PREVIOUS AGENTS"
   - Analyst's fault if: Both files were available but Analyst's code is buggy

Task description:
{problem}

Current agent being evaluated:
{agent_role}

FILES SAVED BY PREVIOUS AGENTS:
{files_saved}

What the agent received as input:
{agent_input}

What the agent outputted:
{agent_output}

tool_observation:
{tool_observation}

ground_truth_answer:
{ground_truth_answer}

## Scoring Guidelines

Score 10: EXCEPTIONAL - Agent exceeded expectations
Score 8-9: Code executed successfully, all required files saved, methodology is sound
Score 6-7: Code executed, most files saved, minor issues
Score 4-5: Agent tried but code had errors
Score 2-3: Code crashed due to upstream failures
Score 0-1: Agent produced no useful output

## Using Ground Truth Metrics (Analyst Only)

If ground truth metrics are provided, apply HARD CAPS:

Classification Tasks:
| ROC-AUC >= 0.85      | Max 9 |
| ROC-AUC 0.75-0.85    | Max 8 |
| ROC-AUC 0.65-0.75    | Max 6 |
| ROC-AUC 0.55-0.65    | Max 4 |
| ROC-AUC < 0.55       | Max 3 |

Regression Tasks (RMSE as % of range):
| RMSE < 10%           | Max 9 |
| RMSE 10-25%          | Max 8 |
| RMSE 25-50%          | Max 6 |
| RMSE > 50%           | Max 4 |

{output_format}"""

DSBENCH_FORMAT = f"""\
Output format:

{PROCESS_SCORE}: [0 to 10]"""

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        "general": Template(GENERAL, GENERAL_FORMAT),
        "mathchat": Template(MATHCHAT, MATHCHAT_FORMAT),
        "dsbench": Template(DSBENCH, DSBENCH_FORMAT, facts=("files_saved",)),
    }
)

# MAPPA, appendix F.2, whose prompt the paper does not print
BACKWARD = """\
A multiagent system has finished a trajectory, and its outcome is known. You trace that outcome backward, from the last
action to the first: at each action you say which part of the outcome it explains, and pass on what is left.

Problem that the overall system is solving:
{problem}

Outcome being explained:
{outcome}

What has been attributed to later actions, and what they leave unexplained:
{residual}

Action number {step} of {steps}, by the agent:
{agent_role}

What the agent received as input (the output of earlier agents is part of it):
{agent_input}

What the agent outputted:
{agent_output}

Environment feedback for the agent's tool call (if applicable):
{tool_observation}

In points from -10 to 10, the outcome as a whole is worth {value}, and {unexplained} points are not yet attributed. How
many points of these does this action explain? An action that did not matter for the outcome gets 0, however good or bad
it was; one that caused a failure gets a negative number, and one that saved the team a positive one. If earlier agents
brought about what is left, leave it to them: say in words how their output, as this agent received it, contributed. \
{last}

{output_format}"""
