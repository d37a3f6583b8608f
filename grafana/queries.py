"""PromQL that the dashboards share.

Every query takes the maximum over exporters, so that two that watch the same engine count once.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_exporter.model import State

JOB = 'job=~"$job", cluster=~"$cluster"'
FLEET = f'{JOB}, namespace=~"$namespace", target=~"$target"'
TARGET = f'{JOB}, target="$target"'
ENGINE = f'{TARGET}, engine="$engine"'
GPUS = f'{JOB}, uuid=~"$gpu"'
EXPORTERS = f'{JOB}, instance=~"$instance"'
TARGET_KEY = "cluster, target"
ENGINE_KEY = "cluster, target, engine"
ENGINE_LEGEND = "{{target}} {{engine}} {{cluster}}"
_OTHER_MODEL = f'kvcache_engine_info{{{JOB}, model_name!~"$model_name"}}'
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


def fleet(metric: str, matchers: str = "", *extra: str, only: str = "") -> str:
    """Select engines by the variables; one that is down names no model and stays in every choice.

    That is why other models are taken away instead of the chosen one being joined.
    """
    return _of_model(ENGINE_KEY, f"{_select(metric, FLEET, matchers)} {only}".rstrip(), extra)


def fleet_targets(metric: str, matchers: str = "", *extra: str) -> str:
    """Select targets as `fleet` selects engines."""
    return _of_model(TARGET_KEY, _select(metric, FLEET, matchers), extra)


def engine(metric: str, matchers: str = "", by: str = "") -> str:
    """Select the one engine that the variables name."""
    return f"max{_by(by)}({_select(metric, ENGINE, matchers)})"


def target(metric: str, matchers: str = "", by: str = "") -> str:
    """Select the one target that the variables name."""
    return f"max{_by(by)}({_select(metric, TARGET, matchers)})"


def gpu(metric: str) -> str:
    """Select GPUs by the variables."""
    return f"max by (uuid) ({_select(metric, GPUS)})"


def gpu_source(metric: str) -> str:
    """Select the GPU sources of all exporters."""
    return _select(metric, JOB)


def exporter(metric: str) -> str:
    """Select exporters by the variables."""
    return _select(metric, EXPORTERS)


def worst(expr: str, key: str = ENGINE_KEY, count: int = 5) -> str:
    """Keep what was highest, and above zero, in the range: the same engines at every step.

    A bare topk() chooses anew at each step and draws a hundred broken lines.
    """
    return f"({expr}) and on ({key}) {_highest(expr, count)}"


def in_trouble(expr: str) -> str:
    """Keep the engines that have a state to look at now."""
    verdict = _select("kvcache_verdict", FLEET, NOT_OK)
    return f"({expr}) and on ({ENGINE_KEY}) ({verdict} == 1)"


def state_code(selector: str) -> str:
    """Turn the one-hot verdict into one number, the place of the state in the list of states.

    `looks.states_by_code` turns it into words again. Where two exporters disagree, the state
    that is tested first wins.
    """
    verdicts = (_select("kvcache_verdict", selector, _state(state)) for state in State)
    terms = (f"{code} * ({verdict} == 1)" for code, verdict in enumerate(verdicts))
    return f"min by ({ENGINE_KEY}) ({' or '.join(terms)})"


def least_often_ok(expr: str, count: int = 15) -> str:
    """Keep the engines that had something else to say for most of the range."""
    troubled = f"(1 - {fleet('kvcache_verdict', _state(State.OK))})"
    return f"{expr} and on ({ENGINE_KEY}) {_highest(troubled, count)}"


def engine_gpus(metric: str) -> str:
    """Sum over the GPUs of the one engine; without a known owner there is no value."""
    bridge = _select("kvcache_engine_gpu_info", ENGINE)
    return f'sum(max by (uuid) ({metric}{{{JOB}, uuid=~"$gpu"}}) and on (uuid) {bridge})'


def _state(state: State) -> str:
    return f'state="{state}"'


def _highest(expr: str, count: int) -> str:
    return f"topk({count}, avg_over_time(({expr})[$__range:$__interval] @ end()) > 0)"


def _select(metric: str, selector: str, matchers: str = "") -> str:
    return f"{metric}{{{', '.join(filter(None, (selector, matchers)))}}}"


def _of_model(key: str, chosen: str, extra: tuple[str, ...]) -> str:
    chosen = f"max by ({', '.join((key, *extra))}) ({chosen})"
    return f"({chosen} unless on ({key}) {_OTHER_MODEL})"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else " "


FLEET_USAGE = f"{fleet('kvcache_used_blocks')} / {fleet('kvcache_pool_blocks')}"
"""Share of its pool that each engine uses."""
