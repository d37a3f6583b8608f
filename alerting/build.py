"""Writes rules/ and rules-vllm-only/ from source/ and thresholds.yml.

    python alerting/build.py                                # what is committed
    python alerting/build.py --out DIR --set job=vllm-kv    # for your own Prometheus
    python alerting/build.py --out DIR --speed 300          # the same rules, 300 times faster
    python alerting/build.py --list                         # the alerts as a table

In a source file ``<<name>>`` is a threshold or a phrase of `PHRASES`. In an annotation
``<<kvcache_used_blocks{engine} | printf "%.0f">>`` is the value of that expression for the thing
the alert is about, or the word "unknown" where nothing says it; ``<<list problem of
kvcache_target_problem{target}>>`` lists a label of all its series.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source"
Values = Mapping[str, str | int | float]

SCOPES = {
    "engine": ("cluster", "target", "engine"),
    "target": ("cluster", "target"),
    "gpu": ("cluster", "uuid"),
    "source": ("cluster", "job", "instance", "source"),
    "exporter": ("cluster", "job", "instance"),
    "replica": ("cluster", "job", "instance", "engine", "model_name"),
    "version": ("cluster", "vllm_version"),
}
"""Labels that say which thing an alert is about. A label an alert lacks is the empty string,
which in a selector means "without it"."""

PHRASES = {
    "engine_labels": "cluster, namespace, pod, target, engine",
    "target_labels": "cluster, namespace, pod, target",
    "source_labels": "cluster, job, instance, source",
    "with_model": "* on (cluster, namespace, pod, target, engine) group_left (model_name)\n"
    "  engine:kvcache_engine:info",
    "Engine": "Engine {{ $labels.engine }} of {{ $labels.target }}"
    "{{ with $labels.model_name }} ({{ . }}){{ end }}",
}
NAME = re.compile(r"<<(\w+)>>")
QUESTION = re.compile(r"<<(?:list (?P<label>\w+) of )?(?P<query>.+?)(?: \| (?P<how>.+?))?>>")
SCOPED = re.compile(r"\{(" + "|".join(SCOPES) + r")\b")
DURATION = re.compile(r"(\d+)([smhd])")
MILLISECONDS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
HEADER = "# Made by alerting/build.py from alerting/source/{name} and alerting/thresholds.yml.\n"


def thresholds(changes: Mapping[str, str] | None = None, speed: int = 1) -> dict[str, Any]:
    """Read thresholds.yml, with *changes* laid over it and its durations divided by *speed*."""
    values = yaml.safe_load((HERE / "thresholds.yml").read_text(encoding="utf-8"))
    for name, text in (changes or {}).items():
        if name not in values:
            raise SystemExit(f"--set {name}: no such threshold in thresholds.yml")
        values[name] = type(values[name])(text)
    return {name: faster(value, speed) for name, value in values.items()}


def faster(value: str | int | float, speed: int) -> str | int | float:
    """Divide a Prometheus duration; numbers and other texts stay."""
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None or speed == 1:
        return value
    return f"{int(found[1]) * MILLISECONDS[found[2]] // speed}ms"


def fill(text: str, values: Values) -> str:
    """Put thresholds, phrases and questions to Prometheus where *text* says ``<<...>>``."""
    known = {**values, **PHRASES}

    def named(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise SystemExit(f"{match[0]} is neither in thresholds.yml nor a phrase of build.py")
        return str(known[match[1]])

    return QUESTION.sub(_question, NAME.sub(named, text))


def _question(match: re.Match[str]) -> str:
    """Turn ``expression{scope} | format`` into a template that asks Prometheus."""
    scope = SCOPED.search(match["query"])
    if scope is None:
        raise SystemExit(f"{match[0]} does not say for which thing it asks: {', '.join(SCOPES)}")
    labels = SCOPES[scope[1]]
    selector = ",".join(f"{label}=%[{place}]q" for place, label in enumerate(labels, 1))
    query = SCOPED.sub("{" + selector, match["query"]).replace('"', '\\"')
    of = " ".join(f"$labels.{label}" for label in labels)
    if label := match["label"]:
        return (
            f'{{{{ range $i, $e := printf "{query}" {of} | query | sortByLabel "{label}" }}}}'
            f"{{{{ if $i }}}}, {{{{ end }}}}{{{{ .Labels.{label} }}}}"
            "{{ else }}none{{ end }}"
        )
    return (
        f'{{{{ with printf "max({query})" {of} | query }}}}'
        f"{{{{ . | first | value | {match['how'] or 'humanize'} }}}}"
        "{{ else }}unknown{{ end }}"
    )


def rules(path: Path, values: Values) -> dict[str, Any]:
    """Make the rule file of one source file; each alert gets its links, none can be forgotten."""
    source = yaml.safe_load(path.read_text(encoding="utf-8"))
    dashboard = source.pop("dashboard", "/")
    for group in source["groups"]:
        for rule in group["rules"]:
            rule["expr"] = fill(rule["expr"].strip(), values)
            if "alert" in rule:
                _complete(rule, path.stem, rule.pop("dashboard", dashboard), values)
    return dict(source)


def _complete(rule: dict[str, Any], page: str, dashboard: str, values: Values) -> None:
    for name in {"for", "keep_firing_for"} & rule.keys():
        rule[name] = fill(rule[name], values)
    rule["labels"] = {name: fill(text, values) for name, text in rule["labels"].items()}
    texts = {name: fill(" ".join(t.split()), values) for name, t in rule["annotations"].items()}
    anchor = f"{page}.md#{rule['alert'].lower()}"
    rule["annotations"] = {
        **texts,
        "runbook_url": f"{values['runbooks_url']}/{anchor}",
        "dashboard_url": f"{values['grafana_url']}{dashboard}",
    }


def files(values: Values) -> dict[str, str]:
    """Make every rule file: path below alerting/ to text."""
    made = {}
    for path in sorted(SOURCE.glob("*.yml")):
        folder = "rules-vllm-only" if path.stem == "vllm-only" else "rules"
        text = yaml.dump(
            rules(path, values), Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True
        )
        made[f"{folder}/{path.name}"] = HEADER.format(name=path.name) + text
    return made


class _Dumper(yaml.SafeDumper):
    """Writes expressions of several lines as blocks, as a person would."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists below their key."""
        return super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def write(out: Path, values: Values) -> list[Path]:
    """Write every rule file below *out*."""
    written = []
    for name, text in files(values).items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def table(values: Values) -> str:
    """List the alerts as a Markdown table, for docs/alerting.md."""
    rows = ["| alert | severity | after | |", "|---|---|---|---|"]
    for path in sorted(SOURCE.glob("*.yml")):
        found = [rule for group in rules(path, values)["groups"] for rule in group["rules"]]
        rows += [
            f"| [{rule['alert']}](runbooks/{path.stem}.md#{rule['alert'].lower()})"
            f" | {rule['labels']['severity']} | {rule['for']} | {rule['annotations']['summary']} |"
            for rule in found
            if "alert" in rule
        ]
    return "\n".join(rows) + "\n"


def main() -> None:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    parser.add_argument("--speed", type=int, default=1, help="divide all durations (for tests)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="changes")
    parser.add_argument("--list", action="store_true", help="print the alerts as a table instead")
    given = parser.parse_args()
    changes = dict(change.partition("=")[::2] for change in given.changes)
    values = thresholds(changes, given.speed)
    print(table(values) if given.list else "\n".join(map(str, write(given.out, values))))  # noqa: T201


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the examples as they are."""


if __name__ == "__main__":
    main()
