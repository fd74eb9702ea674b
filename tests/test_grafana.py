"""The dashboard and the alert rules in examples/grafana ask for metrics and labels that there are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from duramen.base.metrics import CATALOGUE

_GRAFANA: Final = Path(__file__).parents[1] / "examples" / "grafana"
_SCRAPED: Final = {"job", "instance"}  # labels that Prometheus adds to everything
_FUNCTIONS: Final = {
    "and", "by", "histogram_quantile", "increase", "label_values", "max", "min", "min_over_time", "offset", "rate",
    "sum",
}  # fmt: skip
_ROWS: Final = ("throughput", "lag", "latency", "syncs", "memory", "nats", "errors", "cluster")
_ALERTS: Final = {
    "DuramenDown", "DuramenNotReady", "DuramenStorageFailed", "DuramenStorageFull", "DuramenLagGrowing",
    "DuramenNatsGap", "DuramenSyncSlow", "DuramenLoopSlow", "DuramenPartitionsOffline", "DuramenWritesRefused",
    "DuramenUnderReplicated", "DuramenNodeFenced", "DuramenNoController", "DuramenUncleanElection",
    "DuramenTwoControllers", "DuramenInSyncShrinks", "DuramenRequestsSlow",
}  # fmt: skip


def _series() -> dict[str, set[str]]:
    """Names of series as Prometheus stores them, with their labels."""
    found = {"up": set(_SCRAPED)}
    for metric in CATALOGUE:
        labels = _SCRAPED | set(metric.labels)
        if metric.kind == "histogram":
            found |= {metric.name + suffix: labels for suffix in ("_count", "_sum")}
            found[metric.name + "_bucket"] = labels | {"le"}
        else:
            found[metric.name] = labels
    return found


_SERIES: Final = _series()


def _dashboard() -> Any:
    return json.loads((_GRAFANA / "dashboard.json").read_text(encoding="utf-8"))


def _panels() -> list[Any]:
    return [panel for panel in _dashboard()["panels"] if panel["type"] != "row"]


def _rules() -> list[Any]:
    document = yaml.safe_load((_GRAFANA / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def _expressions() -> Iterator[str]:
    for panel in _panels():
        for target in panel["targets"]:
            yield target["expr"]
    for variable in _dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    for rule in _rules():
        yield rule["expr"]


def _matchers(text: str) -> set[str]:
    """The labels that `{…}` names."""
    return set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", text))


def _labels_of(expression: str) -> set[str]:
    """The labels that the result of an expression has. Fails where it names what there is not."""
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")
    named = re.findall(r"\b(up|duramen_\w+)(\{[^}]*\})?", expression)
    assert named
    known: set[str] = set()
    for name, matchers in named:
        assert name in _SERIES, f"there is no series {name}"
        assert _matchers(matchers) <= _SERIES[name], f"{name} has no such labels: {matchers}"
        known |= _SERIES[name]
    clauses = [set(re.findall(r"\w+", clause)) for clause in re.findall(r"\bby\s*\(([^)]*)\)", expression)]
    for labels in clauses:
        assert labels <= known, f"no such labels: {labels - known}"
    rest = re.sub(r'\{[^}]*\}|\[[^\]]*\]|\bby\s*\([^)]*\)|"[^"]*"', " ", expression)
    words = set(re.findall(r"\b[a-z]\w*", rest)) - set(_SERIES)
    if not expression.startswith("label_values"):
        assert words <= _FUNCTIONS, f"no such functions: {words - _FUNCTIONS}"
    if clauses:
        return set.intersection(*clauses) - {"le"}
    return set() if re.match(r"(sum|min|max|histogram_quantile)\b", expression) else known


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_an_expression_names_metrics_and_labels_that_there_are(expression: str) -> None:
    _labels_of(expression)


def test_what_is_shown_beside_a_value_is_a_label_of_it() -> None:
    for panel in _panels():
        for target in panel["targets"]:
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert shown <= _labels_of(target["expr"]), panel["title"]
    for rule in _rules():
        shown = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert shown <= _labels_of(rule["expr"]), rule["alert"]


def test_the_dashboard_is_whole() -> None:
    dashboard = _dashboard()
    rows = [panel["title"].lower() for panel in dashboard["panels"] if panel["type"] == "row"]
    assert [row for row in rows if row in _ROWS] == list(_ROWS)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_]+)", json.dumps(dashboard)))
    assert used - {"__rate_interval", "__all"} <= variables
    assert next(one for one in dashboard["templating"]["list"] if one["name"] == "datasource")["type"] == "datasource"
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in _panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    taken = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_the_alerts_are_whole() -> None:
    rules = _rules()
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names)
    assert set(names) >= _ALERTS
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
