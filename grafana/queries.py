"""PromQL that the dashboards share.

Every query takes the maximum over exporters, so that two that watch the same engine count once.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_exporter.model import State

FLEET = 'job=~"$job", namespace=~"$namespace", target=~"$target"'
ENGINE = 'job=~"$job", target="$target", engine="$engine"'
TARGET = 'job=~"$job", target="$target"'
JOB = 'job=~"$job"'
_OTHER_MODEL = 'kvcache_engine_info{job=~"$job", model_name!~"$model_name"}'
NOT_OK = 'state!~"ok|unknown"'


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression of a panel, and the name its series get."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False


def rows(expr: str) -> Query:
    """Ask for the rows of a table, now."""
    return Query(expr, instant=True, table=True)


def now(expr: str, legend: str = "") -> Query:
    """Ask for the newest value alone: the last one of a range would outlive its engine."""
    return Query(expr, legend, instant=True)


def fleet(metric: str, matchers: str = "", by: str = "target, engine") -> str:
    """Select engines by the variables; one that is down names no model and stays in every choice.

    That is why other models are taken away instead of the chosen one being joined.
    """
    return f"(max by ({by}) ({_select(metric, FLEET, matchers)}) {_of_model('target, engine')})"


def fleet_targets(metric: str, matchers: str = "", by: str = "target") -> str:
    """Select targets as `fleet` selects engines."""
    return f"(max by ({by}) ({_select(metric, FLEET, matchers)}) {_of_model('target')})"


def engine(metric: str, matchers: str = "", by: str = "") -> str:
    """Select the one engine that the variables name."""
    return f"max{_by(by)}({_select(metric, ENGINE, matchers)})"


def target(metric: str, matchers: str = "", by: str = "") -> str:
    """Select the one target that the variables name."""
    return f"max{_by(by)}({_select(metric, TARGET, matchers)})"


def worst(expr: str, count: int = 10) -> str:
    """Keep the engines that were highest in the range: the same ones at every step.

    A bare topk() chooses anew at each step and draws a hundred broken lines.
    """
    return f"({expr}) and on (target, engine) {_highest(expr, count)}"


def in_trouble(expr: str) -> str:
    """Keep the engines that have a state to look at now."""
    verdict = _select("kvcache_verdict", FLEET, NOT_OK)
    return f"({expr}) and on (target, engine) ({verdict} == 1)"


def state_code(selector: str, by: str = "target, engine") -> str:
    """Turn the one-hot verdict into one number, the place of the state in the list of states.

    `looks.states_by_code` turns it into words again.
    """
    terms = (f'{code} * kvcache_verdict{{{selector}, state="{s}"}}' for code, s in enumerate(State))
    return f"sum by ({by}) (max by ({by}, state) ({' or '.join(terms)}))"


def least_often_ok(expr: str, count: int = 20) -> str:
    """Keep the engines that had something else to say for most of the range."""
    troubled = f"(1 - {fleet('kvcache_verdict', _state(State.OK))})"
    return f"{expr} and on (target, engine) {_highest(troubled, count)}"


def engine_gpus(metric: str) -> str:
    """Sum over the GPUs of the one engine; without a known owner there is no value."""
    bridge = _select("kvcache_engine_gpu_info", ENGINE)
    return f'sum(max by (uuid) ({metric}{{{JOB}, uuid=~"$gpu"}}) and on (uuid) {bridge})'


def _state(state: State) -> str:
    return f'state="{state}"'


def _highest(expr: str, count: int) -> str:
    return f"topk({count}, avg_over_time(({expr})[$__range:$__interval] @ end()))"


def _select(metric: str, selector: str, matchers: str = "") -> str:
    return f"{metric}{{{', '.join(filter(None, (selector, matchers)))}}}"


def _of_model(labels: str) -> str:
    return f"unless on ({labels}) {_OTHER_MODEL}"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else " "
