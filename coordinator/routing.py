"""Turns a ready leaf into a request: renders its call, estimates its cost, gives it a budget and an instance."""

from dataclasses import dataclass

from common.model import LlmCall, Push, Sampling, ToolCall
from common.policy.budget import budget_s
from common.policy.cost import fits
from coordinator.cluster import Cluster, load_ms, needed_features
from coordinator.language.definition import LlmBody, ToolBody
from coordinator.places import Place
from coordinator.scope import Scope
from coordinator.state import Workflow

TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class Parked:
    """No instance can take the request now. `hopeless`: none that is registered ever can."""

    reason: str
    hopeless: bool


@dataclass(frozen=True, slots=True)
class Slack:
    """What is left of a workflow: seconds of its SLO, and expected seconds of work."""

    slo_s: float
    work_s: float


def route(workflow: Workflow, at: Place, request: str, scope: Scope, cluster: Cluster, slack: Slack) -> Push | Parked:
    """The request of a leaf, addressed. Raises TemplateError."""
    if isinstance(at.spec.body, ToolBody):
        return _route_tool(workflow, at, request, scope, cluster, slack)
    assert isinstance(at.spec.body, LlmBody)
    return _route_llm(workflow, at, at.spec.body, request, scope, cluster, slack)


def _route_llm(
    workflow: Workflow, at: Place, body: LlmBody, request: str, scope: Scope, cluster: Cluster, slack: Slack
) -> Push | Parked:
    serving = cluster.serving(body.model, body.requires, needed_features(body))
    if not serving:
        return Parked(_nobody_serves(body), hopeless=False)
    call = render_llm(body, at, scope)
    name, estimates = workflow.definition.name, cluster.estimates
    prompt_tokens = max(1, round(len(call.text()) / estimates.chars_per_token(name, at.spec)))
    output_tokens = estimates.output_tokens(name, at.spec)
    able = [instance for instance in serving if fits(instance, prompt_tokens)]
    if not able:
        longest = max(min(i.profile.context_tokens, i.profile.kv_tokens) for i in serving)
        return Parked(
            f"the prompt has about {prompt_tokens} tokens; no instance takes more than {longest}", hopeless=True
        )
    costs = [cluster.exec_s(instance, prompt_tokens, output_tokens) for instance in able]
    chosen = cluster.choose(able, costs)
    budget = budget_s(slack.slo_s, sum(costs) / len(costs), slack.work_s)
    return Push(
        request=request,
        node=at.key,
        instance=able[chosen].id,
        offset_ms=round(1000 * cluster.policy.order.offset_s(budget, costs[chosen])),
        load_ms=load_ms(costs[chosen]),
        budget_ms=round(1000 * budget),
        deadline_at=workflow.head.slo.deadline_at,
        prompt_tokens=prompt_tokens,
        call=call,
        stage=f"{name}/{at.spec.path}",
        timeout_s=at.spec.timeout_s,
        stream=workflow.head.stream,
    )


def _route_tool(
    workflow: Workflow, at: Place, request: str, scope: Scope, cluster: Cluster, slack: Slack
) -> Push | Parked:
    assert isinstance(at.spec.body, ToolBody)
    cost = cluster.stage_s(workflow.definition.name, at.spec)
    budget = budget_s(slack.slo_s, cost, slack.work_s)
    return Push(
        request=request,
        node=at.key,
        instance=TOOLS,
        offset_ms=round(1000 * cluster.policy.order.offset_s(budget, cost)),
        load_ms=load_ms(cost),
        budget_ms=round(1000 * budget),
        deadline_at=workflow.head.slo.deadline_at,
        prompt_tokens=1,
        call=ToolCall(at.spec.body.tool, scope.render(at.spec.body.args, at)),
        stage=f"{workflow.definition.name}/{at.spec.path}",
        timeout_s=at.spec.timeout_s,
        stream=False,
    )


def render_llm(body: LlmBody, at: Place, scope: Scope) -> LlmCall:
    """The call of an llm stage. Raises TemplateError."""
    prompt = None if body.prompt is None else scope.render(body.prompt, at)
    messages = None
    if body.messages:
        messages = tuple({"role": role, "content": scope.render(text, at)} for role, text in body.messages)
    sampling = Sampling(
        body.max_tokens, body.temperature, body.top_p, body.stop, body.seed, body.json_schema
    )  # fmt: skip
    return LlmCall(prompt, messages, body.model, sampling)


def _nobody_serves(body: LlmBody) -> str:
    wanted = f"model {body.model}" if body.model else "any model"
    labels = f" with labels {', '.join(sorted(body.requires))}" if body.requires else ""
    schema = " and JSON-schema output" if body.json_schema is not None else ""
    return f"no ready instance serves {wanted}{labels}{schema}"
