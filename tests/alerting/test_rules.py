"""Each rule is well formed, is tested both ways, and speaks only of what the exporter exposes."""

from __future__ import annotations

import json
import re

import pytest
from alert_rules import alerts, all_rules, call, expectations, rule_files
from real_parts import ALERTING, ROOT, rule_builder

from kvcache_exporter.metrics import CATALOGUE
from kvcache_exporter.model import FindingKind, State

ALERTS = pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule.id)
TESTS = sorted((ALERTING / "tests").glob("*.yml"))
OUTSIDE = {"up", "ALERTS"}
"""Series that Prometheus makes itself."""


def test_the_committed_rules_are_what_their_sources_make():
    made = rule_builder().files(rule_builder().thresholds())
    assert {str(path.relative_to(ALERTING)): path.read_text() for path in rule_files()} == made


def test_prometheus_finds_no_fault_in_the_rules():
    call("promtool", "check", "rules", "--lint=all", "--lint-fatal", *rule_files())


def test_prometheus_accepts_the_rules_at_any_speed(tmp_path):
    written = rule_builder().write(tmp_path, rule_builder().thresholds({"job": "other"}, speed=300))
    call("promtool", "check", "rules", "--lint=all", "--lint-fatal", *written)
    assert 'job="other"' in (tmp_path / "rules/exporter.yml").read_text()


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_rules_do_what_their_tests_say(path):
    call("promtool", "test", "rules", path)


@ALERTS
def test_an_alert_says_how_bad_what_and_where_to_read_on(rule):
    assert rule.severity in ("critical", "warning", "info")
    assert rule.text["for"]
    notes = rule.text["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert "{{" not in notes["summary"], "a summary is the same for every alert of its name"
    names_it = "{{" in notes["description"] or rule.text["expr"].startswith("absent(")
    assert names_it, "a description names the thing, if there is one"
    assert notes["runbook_url"].endswith(f"/{rule.page}.md#{rule.name.lower()}")


@ALERTS
def test_an_alert_has_no_label_that_changes_while_it_lasts(rule):
    assert "{{" not in "".join(rule.text["labels"].values())


@ALERTS
def test_an_alert_is_silent_then_fires_then_clears(rule):
    lines = [line for line in expectations() if line.alert == rule.name]
    fires = {
        line.group
        for line in lines
        if rule.severity in [one["exp_labels"]["severity"] for one in line.alerts]
    }
    assert fires, "no test sees it fire"
    assert any(_silent_fires_clears([x for x in lines if x.group == group]) for group in fires)


@ALERTS
def test_an_alert_is_silent_where_nothing_is_wrong_and_where_nothing_is_known(rule):
    groups = {line.group for line in expectations() if line.alert == rule.name}
    firing = {line.group for line in expectations() if line.alert == rule.name and line.alerts}
    assert groups - firing, "no test shows it silent on a neighbouring pattern"


def _silent_fires_clears(lines):
    states = [bool(line.alerts) for line in sorted(lines, key=lambda line: line.seconds)]
    return not states[0] and any(states) and not states[-1]


def test_every_expected_text_is_whole():
    for line in expectations():
        for one in line.alerts:
            text = " ".join(one["exp_annotations"].values())
            assert "error expanding" not in text
            assert "<no value>" not in text
            assert "<<" not in text


def test_every_metric_in_a_rule_is_in_the_catalogue_or_recorded():
    known = {metric.name for metric in CATALOGUE} | OUTSIDE
    known |= {rule["record"] for rule in all_rules() if "record" in rule}
    vllm = json.loads((ROOT / "tests/data/vllm-metrics.json").read_text())["families"]
    for rule in all_rules():
        for text in (rule["expr"], *rule.get("annotations", {}).values()):
            used = set(re.findall(r"\b(?:\w+:)*kvcache_\w+(?::\w+)*", text))
            assert used <= known, rule
            assert set(re.findall(r"\bvllm:(\w+)", text)) <= {one["name"] for one in vllm}


def test_every_state_finding_and_problem_in_a_rule_exists():
    code = "".join(path.read_text() for path in (ROOT / "kvcache_exporter").rglob("*.py"))
    for rule in all_rules():
        for state in re.findall(r'kvcache_verdict\{state="(\w+)"', rule["expr"]):
            assert State(state)
        for kind in re.findall(r'finding="(\w+)"', rule["expr"]):
            assert FindingKind(kind)
        for pattern in re.findall(r'problem=~?"([^"]+)"', rule["expr"]):
            for problem in pattern.split("|"):
                assert problem == ".+_frozen" or f'"{problem}"' in code or problem in FROZEN, (
                    problem
                )


FROZEN = ("dcgm_frozen",)
"""The code is made of the source's name."""


def test_every_threshold_is_used_by_a_rule_or_a_dashboard():
    rules = "".join(path.read_text() for path in (ALERTING / "source").glob("*.yml"))
    boards = "".join(path.read_text() for path in (ROOT / "grafana").rglob("*.py"))
    for name in rule_builder().thresholds():
        used = f"<<{name}>>" in rules or re.search(rf'"{name}"|\[\W?{name}', boards)
        assert used or name in ("runbooks_url", "grafana_url"), name


def test_a_placeholder_that_nobody_defines_stops_the_build():
    with pytest.raises(SystemExit, match="neither in thresholds"):
        rule_builder().fill("x > <<no_such_number>>", rule_builder().thresholds())
    with pytest.raises(SystemExit, match="for which thing"):
        rule_builder().fill("<<kvcache_used_blocks | humanize>>", rule_builder().thresholds())
    with pytest.raises(SystemExit, match="no such threshold"):
        rule_builder().thresholds({"no_such_number": "1"})


def test_durations_alone_run_faster_at_speed():
    plain, fast = rule_builder().thresholds(), rule_builder().thresholds(speed=60)
    assert plain["leak_proven_for"] == "15m"
    assert fast["leak_proven_for"] == "15000ms"
    numbers = {k: v for k, v in plain.items() if not isinstance(v, str)}
    assert numbers == {k: fast[k] for k in numbers}
    assert sorted(plain) == sorted(fast)


def test_the_list_of_alerts_in_the_documentation_is_complete(request):
    path = ROOT / "docs/alerting.md"
    before, rest = path.read_text().split("--list -->\n")
    listed, after = rest.split("<!-- end -->")
    made = rule_builder().table(rule_builder().thresholds())
    if request.config.getoption("--update"):
        path.write_text(f"{before}--list -->\n{made}<!-- end -->{after}")
        listed = made
    assert listed == made


@ALERTS
def test_the_dashboard_link_of_an_alert_names_a_dashboard_and_variables_that_exist(rule):
    path = rule.text["annotations"]["dashboard_url"].removeprefix(GRAFANA)
    boards = [json.loads(file.read_text()) for file in (ROOT / "grafana/dashboards").glob("*.json")]
    variables = {one["uid"]: {v["name"] for v in one["templating"]["list"]} for one in boards}
    uid = re.match(r"/d/([\w-]+)", path)
    if rule.page == "vllm-only":
        assert path == "/explore", "there is no dashboard over vLLM's own series"
    else:
        assert uid
        assert set(re.findall(r"[?&]var-(\w+)=", path)) <= variables[uid[1]]


GRAFANA = rule_builder().thresholds()["grafana_url"]


def test_prometheus_accepts_the_configuration_in_the_documentation(tmp_path):
    text = (ROOT / "docs/alerting.md").read_text()
    block = re.search(r"```yaml\n(# prometheus\.yml\n.*?)```", text, re.DOTALL)
    assert block
    file = tmp_path / "prometheus.yml"
    file.write_text(block[1].replace("/etc/prometheus/kvcache", str(ALERTING)))
    said = call("promtool", "check", "config", file)
    assert said.count("rules found") == len(list((ALERTING / "rules").glob("*.yml")))
