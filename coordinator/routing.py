"""Turns a ready leaf into a request: renders its call, estimates its cost, gives it a budget and an instance."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.model import LINE, TOOLS, Grounds, LlmCall, Push, Sampling, ToolCall
from common.policy.budget import budget_s
from common.policy.cost import exec_s
from common.policy.fairness import price
from common.policy.urgency import facts, offset_s
from common.prefix import chain
from coordinator.cluster import Cluster, Waiting, load_ms, needed_features
from coordinator.language.definition import LlmBody, ToolBody
from coordinator.places import Place
from coordinator.scope import Scope
from coordinator.state import Workflow

SURELY = 1.5
"""A prompt is refused unseen only if its estimated length is so many times what any instance takes."""


@dataclass(frozen=True, slots=True)
class Parked:
    """No instance can take the request now. `hopeless`: none that is registered ever can."""

    reason: str
    hopeless: bool


@dataclass(frozen=True, slots=True)
class Work:
    """What is left to do of a workflow now, in ms of Redis time: expected seconds, and those expected after a request.

    `after_s` gives the latter along the critical path, from the end of the request of this place to the workflow's.
    """

    now: int
    work_s: float
    after_s: Callable[[Place], float]


@dataclass(frozen=True, slots=True)
class _Aim:
    """Where a call goes: its seconds there, its mean seconds on all that could have taken it, the wait expected.

    In the line, its seconds there are the mean; requires, features, longer_than: see `Push`.
    """

    instance: str
    cost_s: float
    mean_s: float
    wait_s: float
    prompt_tokens: int
    expected_tokens: int
    call: LlmCall | ToolCall
    requires: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    longer_than: int = 0


def route(workflow: Workflow, at: Place, request: str, scope: Scope, cluster: Cluster, work: Work) -> Push | Parked:
    """The request of a leaf, addressed. Raises TemplateError."""
    name, body = workflow.definition.name, at.spec.body
    if isinstance(body, ToolBody):
        aim: _Aim | Parked = _aim_tool(name, at, body, scope, cluster)
    else:
        assert isinstance(body, LlmBody)
        counted = workflow.nodes[at.key].prompt_tokens if at.key in workflow.nodes else 0
        aim = _aim_llm(name, at, body, scope, cluster, counted)
    if isinstance(aim, Parked):
        return aim
    grounds = _grounds(workflow, at, aim, cluster, work)
    slo, tenant = workflow.head.slo, "" if isinstance(aim.call, ToolCall) else workflow.head.tenant
    known = facts(grounds, slo)
    cost = round(price(aim.prompt_tokens, aim.expected_tokens, 1.0))
    if tenant:
        cluster.shares.charge(tenant, cost)
    return Push(
        request=request,
        node=at.key,
        instance=aim.instance,
        offset_ms=round(1000 * offset_s(cluster.policy, known)),
        load_ms=load_ms(aim.cost_s),
        budget_ms=round(1000 * known.budget_s),
        deadline_at=slo.deadline_at,
        prompt_tokens=aim.prompt_tokens,
        call=aim.call,
        stage=f"{name}/{at.spec.path}",
        timeout_s=at.spec.timeout_s,
        stream=workflow.head.stream and isinstance(aim.call, LlmCall),
        prefix=chain(aim.call.text()) if isinstance(aim.call, LlmCall) else b"",
        expected_tokens=aim.expected_tokens,
        slo_ms=slo.deadline_at - slo.arrival_at,
        requires=aim.requires,
        features=aim.features,
        longer_than=aim.longer_than,
        tenant=tenant,
        price=cost if tenant else 0,
        grounds=grounds,
    )


def _grounds(workflow: Workflow, at: Place, aim: _Aim, cluster: Cluster, work: Work) -> Grounds:
    # What remains counts this request at its own time instead of its stage's mean.
    others_s = max(0.0, work.work_s - cluster.stage_s(workflow.definition.name, at.spec))
    served, behind_s = cluster.share(workflow.head.tenant)
    return Grounds(
        at=work.now,
        share=budget_s(1.0, aim.mean_s, aim.mean_s + others_s),
        exec_s=aim.cost_s,
        path_s=aim.mean_s + work.after_s(at),
        wait_s=aim.wait_s,
        served=served,
        behind_s=behind_s,
    )


def _aim_llm(name: str, at: Place, body: LlmBody, scope: Scope, cluster: Cluster, counted: int) -> _Aim | Parked:
    """`counted`: the prompt's tokens where an engine has counted them, else 0."""
    wanted = (body.model, body.requires, needed_features(body))
    serving = cluster.serving(*wanted)
    if not serving:
        return Parked(_nobody_serves(body), hopeless=False)
    call = _render_llm(body, at, scope)
    estimates = cluster.estimates
    prompt_tokens = counted or max(1, round(len(call.text()) / estimates.chars_per_token(name, at.spec)))
    able = [instance for instance in serving if prompt_tokens <= instance.profile.longest_prompt]
    if not able:
        longest = max(instance.profile.longest_prompt for instance in serving)
        surely = 1.0 if counted else SURELY
        if prompt_tokens > surely * longest:
            told = f"the prompt has {'' if counted else 'about '}{prompt_tokens} tokens; no"
            ever = cluster.longest_ever(*wanted)
            if prompt_tokens > surely * ever:
                return Parked(f"{told} instance takes more than {ever}", hopeless=True)
            return Parked(f"{told} ready instance takes more than {longest}", hopeless=False)
        # The estimate may be too high: let the engine with most room count.
        able = [instance for instance in serving if instance.profile.longest_prompt == longest]
        prompt_tokens = longest
    output_tokens = estimates.output_tokens(name, at.spec)
    costs = [exec_s(instance.profile, prompt_tokens, output_tokens) for instance in able]
    mean_s = sum(costs) / len(costs)
    goes_to, cost_s, wait_s, longer_than = LINE, mean_s, 0.0, 0
    if cluster.policy.late:
        longer_than = cluster.longest_ever(*wanted, below=prompt_tokens)
    else:
        chosen, wait_s = cluster.choose(able, Waiting(prompt_tokens, output_tokens))
        goes_to, cost_s = able[chosen].id, costs[chosen]
    return _Aim(goes_to, cost_s, mean_s, wait_s, prompt_tokens, round(output_tokens), call, *wanted[1:], longer_than)


def _aim_tool(name: str, at: Place, body: ToolBody, scope: Scope, cluster: Cluster) -> _Aim | Parked:
    reason = _not_offered(body.tool, cluster.tools)
    if reason:
        return Parked(reason, hopeless=False)
    cost = cluster.stage_s(name, at.spec)
    return _Aim(TOOLS, cost, cost, 0.0, 1, 0, ToolCall(body.tool, scope.render(body.args, at)))


def _render_llm(body: LlmBody, at: Place, scope: Scope) -> LlmCall:
    prompt = None if body.prompt is None else scope.render(body.prompt, at)
    messages = None
    if body.messages:
        messages = tuple({"role": role, "content": scope.render(text, at)} for role, text in body.messages)
    sampling = Sampling(body.max_tokens, body.temperature, body.top_p, body.stop, body.seed, body.json_schema)
    return LlmCall(prompt, messages, body.model, sampling)


def _not_offered(tool: str, offered: Sequence[frozenset[str]]) -> str:
    """Why this tool can have no request now, or nothing. Any tool worker may take a request: all must have the tool."""
    if not offered:
        return "no tool worker is running"
    if all(tool in tools for tools in offered):
        return ""
    return f"{'not every' if any(tool in tools for tools in offered) else 'no'} tool worker offers {tool}"


def _nobody_serves(body: LlmBody) -> str:
    wanted = f"model {body.model}" if body.model else "any model"
    labels = f" with labels {', '.join(sorted(body.requires))}" if body.requires else ""
    schema = " and JSON-schema output" if body.json_schema is not None else ""
    return f"no ready instance serves {wanted}{labels}{schema}"
