"""Workflows declared as a graph: sequence, parallel branches, conditions, joins and loops, checked when they are built.

How a graph runs. A node lets its role act, then settles each edge that leaves it: an edge without a condition is taken,
one with a condition is taken if it holds. A node waits until every edge that enters it is settled; it runs if at least
one was taken, else it is skipped and so are the edges that leave it. Nodes that wait for nothing more run concurrently.
Edges form no cycle; a cycle is closed by a Loop, which has a condition and a limit. A loop's body is everything between
its target and its source; it is entered at the target and left at the source alone. When the source has acted and the
loop repeats, the body starts afresh; when it does not, the edges that leave the source are settled. Nothing starts once
`env.done` holds.

What concurrent branches write to the environment must not depend on their order: the faster one writes first.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_mas.config.suggest import unknown_name_error
from verl_mas.workflow.base import Workflow
from verl_mas.workflow.environment import Environment
from verl_mas.workflow.errors import GraphError
from verl_mas.workflow.offload import gather_all

if TYPE_CHECKING:
    from verl_mas.workflow.agent import Agents

Condition = Callable[[Environment], bool]


@dataclass(frozen=True, slots=True)
class Node:
    """A place where `role` acts, or, without a role, where edges merely meet or part.

    `join` says that several edges enter: the node waits for all of them.
    """

    role: str | None = None
    join: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """`target` may follow `source`: always, or if `when(env)` holds as `source` ends (quick: it runs on the loop)."""

    source: str
    target: str
    when: Condition | None = None


@dataclass(frozen=True, slots=True)
class Loop:
    """After `source`, back to the earlier (or same) `target` while `when(env)` holds, at most `max_times` times."""

    source: str
    target: str
    when: Condition
    max_times: int


class GraphWorkflow(Workflow):
    """A workflow made of nodes and edges.

    In the records, the turn of an invocation tells the visits of a role apart: with m nodes of the role, visit v of its
    j-th node is turn v * m + j.

    Args:
        roles: the roles that may act. nodes: by name. edges: Edges and Loops. start: the node to begin with.

    Raises:
        UnknownNameError: a node with an unknown role, an edge at an unknown node, an unknown start.
        GraphError: an unreachable node, a join without inputs (two or more edges must enter it) or a meeting of edges
            that is not declared a join, a cycle without a condition, a loop that is none or whose body has a second
            way in or out, a role without a node, two edges alike.
    """

    def __init__(
        self, roles: Sequence[str], nodes: Mapping[str, Node], edges: Sequence[Edge | Loop], start: str
    ) -> None:
        self.roles = tuple(roles)
        self.nodes = dict(nodes)
        self.start = start
        _check_names(self.roles, self.nodes, edges, start)
        self.outputs: dict[str, list[Edge]] = {name: [] for name in nodes}
        self.inputs: dict[str, list[Edge]] = {name: [] for name in nodes}
        self.loops: dict[str, list[Loop]] = {name: [] for name in nodes}
        for edge in edges:
            if isinstance(edge, Loop):
                self.loops[edge.source].append(edge)
            else:
                self.outputs[edge.source].append(edge)
                self.inputs[edge.target].append(edge)
        self._check_acyclic()
        self._descendants = {name: self._reach(name) for name in nodes}
        self._check_inputs()
        self.bodies = {loop: self._check_loop(loop) for loops in self.loops.values() for loop in loops}
        self.peers = {role: [name for name, node in nodes.items() if node.role == role] for role in roles}

    async def run(self, env: Environment, agents: "Agents") -> None:
        """See Workflow."""
        await _Execution(self, env, agents).visit(self.start, ())

    def _reach(self, name: str) -> frozenset[str]:
        """`name` and every node that edges lead to from it."""
        found, frontier = {name}, [name]
        while frontier:
            for edge in self.outputs[frontier.pop()]:
                if edge.target not in found:
                    found.add(edge.target)
                    frontier.append(edge.target)
        return frozenset(found)

    def _check_acyclic(self) -> None:
        waiting = {name: len(edges) for name, edges in self.inputs.items()}
        free = [name for name, count in waiting.items() if count == 0]
        while free:
            name = free.pop()
            del waiting[name]
            for edge in self.outputs[name]:
                waiting[edge.target] -= 1
                if waiting[edge.target] == 0:
                    free.append(edge.target)
        if waiting:  # each node left has an edge from another one left: walk backwards until one repeats
            path = [next(iter(waiting))]
            while path[-1] not in path[:-1]:
                path.append(next(edge.source for edge in self.inputs[path[-1]] if edge.source in waiting))
            cycle = path[path.index(path[-1]) :][::-1]
            raise GraphError(
                f"cycle without condition: {' -> '.join(cycle)}; close it with a Loop(when=..., max_times=...)"
            )

    def _check_inputs(self) -> None:
        for name, node in self.nodes.items():
            sources = [edge.source for edge in self.inputs[name]]
            if node.join and len(sources) < 2:
                raise GraphError(
                    f"join '{name}' needs two or more edges that enter it, and has {len(sources) or 'none'}"
                )
            if len(sources) > 1 and not node.join:
                raise GraphError(f"edges from {', '.join(sources)} meet in node '{name}': declare it with join=True")
            if name not in self._descendants[self.start]:
                raise GraphError(f"unreachable node '{name}': no edges lead there from the start '{self.start}'")

    def _check_loop(self, loop: Loop) -> frozenset[str]:
        """The loop's body."""
        where = f"loop '{loop.source}' -> '{loop.target}'"
        if loop.max_times < 1:
            raise GraphError(f"{where}: max_times must be at least 1, not {loop.max_times}")
        body = frozenset(name for name in self._descendants[loop.target] if loop.source in self._descendants[name])
        if not body:
            raise GraphError(f"{where} is no loop: no edges lead from '{loop.target}' to '{loop.source}'")
        for edges in self.outputs.values():
            for edge in edges:
                if edge.source not in body and edge.target in body and edge.target != loop.target:
                    raise GraphError(f"{where}: edge '{edge.source}' -> '{edge.target}' enters its body in the middle")
                if edge.source in body and edge.target not in body and edge.source != loop.source:
                    raise GraphError(f"{where}: edge '{edge.source}' -> '{edge.target}' leaves its body in the middle")
        return body


def _check_names(roles: Sequence[str], nodes: Mapping[str, Node], edges: Sequence[Edge | Loop], start: str) -> None:
    for node in nodes.values():
        if node.role is not None and node.role not in roles:
            raise unknown_name_error("role", node.role, roles)
    for role in roles:
        if all(node.role != role for node in nodes.values()):
            raise GraphError(f"role '{role}' has no node")
    for name in [start, *(end for edge in edges for end in (edge.source, edge.target))]:
        if name not in nodes:
            raise unknown_name_error("node", name, nodes)
    seen: set[tuple[bool, str, str]] = set()
    for edge in edges:
        key = (isinstance(edge, Loop), edge.source, edge.target)
        if key in seen:
            raise GraphError(f"two edges lead from '{edge.source}' to '{edge.target}'")
        seen.add(key)


class _Execution:
    """One run of a graph. A row is passed along the edges to tell each node what its prompt could see."""

    def __init__(self, graph: GraphWorkflow, env: Environment, agents: "Agents") -> None:
        self._graph = graph
        self._env = env
        self._agents = agents
        self._visits = dict.fromkeys(graph.nodes, 0)
        self._repeats = dict.fromkeys(graph.bodies, 0)
        self._settled: dict[str, dict[str, tuple[str, ...] | None]] = {}  # by target and source; None: not taken
        self._reset(graph.nodes)

    def _reset(self, names: Collection[str]) -> None:
        for name in names:
            self._settled[name] = {}

    async def visit(self, name: str, seen: tuple[str, ...]) -> None:
        """Run a node whose inputs are settled, then what follows it."""
        seen = await self._act(name, seen)
        if self._env.done:
            return
        for loop in self._graph.loops[name]:
            if self._repeats[loop] < loop.max_times and loop.when(self._env):
                self._repeats[loop] += 1
                self._begin_again(loop)
                await gather_all(self.visit(loop.target, seen))
                return
        ready: list[str] = []
        for edge in self._graph.outputs[name]:
            taken = edge.when is None or edge.when(self._env)
            self._settle(edge, seen if taken else None, ready)
        await gather_all(*(self.visit(target, self._seen_by(target)) for target in ready))

    async def _act(self, name: str, seen: tuple[str, ...]) -> tuple[str, ...]:
        role = self._graph.nodes[name].role
        if role is None:
            return seen
        peers = self._graph.peers[role]
        turn = self._visits[name] * len(peers) + peers.index(name)
        self._visits[name] += 1
        await self._agents[role].act(self._env, turn=turn, parents=seen)
        return (*seen, self._agents.committed[role, turn].row)

    def _begin_again(self, loop: Loop) -> None:
        body = self._graph.bodies[loop]
        self._reset(body)
        for inner, inner_body in self._graph.bodies.items():
            if inner_body < body:
                self._repeats[inner] = 0

    def _settle(self, edge: Edge, seen: tuple[str, ...] | None, ready: list[str]) -> None:
        """Note whether the edge was taken. Adds to `ready` the nodes that can now run; passes over skipped ones."""
        settled = self._settled[edge.target]
        settled[edge.source] = seen
        if len(settled) < len(self._graph.inputs[edge.target]):
            return
        if any(rows is not None for rows in settled.values()):
            ready.append(edge.target)
            return
        for output in self._graph.outputs[edge.target]:
            self._settle(output, None, ready)

    def _seen_by(self, name: str) -> tuple[str, ...]:
        """The rows that came along the edges, each once, in the order of the edges' declaration."""
        arrived = (self._settled[name][edge.source] for edge in self._graph.inputs[name])
        return tuple(dict.fromkeys(row for rows in arrived if rows is not None for row in rows))
