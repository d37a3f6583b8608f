"""Every alert reaches whom it is for, and no inhibition rests on a label that nobody carries."""

from __future__ import annotations

import re

import pytest
import yaml
from alert_rules import alerts, call, labels_of, names
from real_parts import ALERTING

CONFIG = ALERTING / "alertmanager.yml"
RECEIVERS = {"critical": "page", "warning": "ticket", "info": "log"}
INHIBITIONS = yaml.safe_load(CONFIG.read_text())["inhibit_rules"]
EXTERNAL = {"alertname", "cluster"}
"""Given by Alertmanager, or by Prometheus' external labels."""


def test_alertmanager_finds_no_fault_in_its_configuration():
    assert "SUCCESS" in call("amtool", "check-config", CONFIG)


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule.id)
def test_an_alert_reaches_the_receiver_of_its_severity(rule):
    labels = [f"alertname={rule.name}", f"severity={rule.severity}", "cluster=a", "target=llm-0"]
    receiver = f"--verify.receivers={RECEIVERS[rule.severity]}"
    call("amtool", "config", "routes", "test", f"--config.file={CONFIG}", receiver, *labels)


def test_an_alert_of_somebody_else_disturbs_nobody():
    labels = ["alertname=NodeDown", "severity=critical"]
    option = "--verify.receivers=log"
    call("amtool", "config", "routes", "test", f"--config.file={CONFIG}", option, *labels)


def test_no_secret_stands_in_the_configuration():
    for receiver in yaml.safe_load(CONFIG.read_text())["receivers"]:
        for kind in receiver.values():
            for settings in kind if isinstance(kind, list) else ():
                secret = [key for key in settings if key.endswith(("_key", "_url", "password"))]
                assert secret in ([], ["client_url"]), settings


@pytest.mark.parametrize("inhibition", INHIBITIONS, ids=lambda one: one["source_matchers"][0])
def test_an_inhibition_names_alerts_that_exist_and_labels_that_both_sides_carry(inhibition):
    sources = _matched(inhibition["source_matchers"])
    targets = _matched(inhibition["target_matchers"])
    assert sources
    assert targets
    for label in set(inhibition["equal"]) - EXTERNAL:
        assert any(label in labels_of(name) for name in sources), label
        assert any(label in labels_of(name) for name in targets), label


@pytest.mark.parametrize("inhibition", INHIBITIONS, ids=lambda one: one["source_matchers"][0])
def test_no_alert_mutes_itself(inhibition):
    both = _rules(inhibition["source_matchers"]) & _rules(inhibition["target_matchers"])
    assert not both


def test_every_alert_named_in_an_inhibition_exists():
    for matcher in (m for one in INHIBITIONS for side in SIDES for m in one[side]):
        for word in re.findall(r"KVCache\w+", matcher):
            assert word in names() or f"{word}.+" in matcher, word


SIDES = ("source_matchers", "target_matchers")


def _matched(matchers):
    return {name for name, _ in _rules(matchers)}


def _rules(matchers):
    """(name, severity) of the rules that the matchers can match."""
    return {
        (rule.name, rule.severity)
        for rule in alerts()
        if all(_matches(matcher, rule) for matcher in matchers)
    }


def _matches(matcher, rule):
    label, operator, pattern = re.fullmatch(r'(\w+) (=|=~|!=|!~) "(.*)"', matcher).groups()
    value = {"alertname": rule.name, "severity": rule.severity}.get(label)
    if value is None:
        value = "0" if label in labels_of(rule.name) else ""
    hit = bool(re.fullmatch(pattern, value)) if "~" in operator else value == pattern
    return hit != operator.startswith("!")
