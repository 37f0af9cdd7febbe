"""The dashboard and the alert rules in docs/monitoring, and deploy/kubernetes, name metrics that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.scripted import ScriptedBackend
from drafter_client.observability.drafter_metrics import DrafterMetrics
from specpair.http_service.observability.metrics import ServiceMetrics
from tests.paths import ROOT
from verifier_server.service import Service
from verifier_server.settings import Settings

FOLDER = ROOT / "docs" / "monitoring"
MANIFESTS = ROOT / "deploy" / "kubernetes"
DASHBOARD, ALERTS = FOLDER / "grafana-dashboard.json", FOLDER / "alerts.yml"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: it comes with Debian's package prometheus"
)


@cache
def series() -> frozenset[str]:
    """The names of all series of the two ends."""
    service = Service(Settings(backend="scripted"), ScriptedBackend())
    service.loader.start()
    service.loader.wait()
    drafter = ServiceMetrics(lambda: "m")
    DrafterMetrics(drafter)
    families = [*service.metrics.registry.collect(), *drafter.registry.collect()]
    service.stop()
    return frozenset(family.name + suffix for family in families for suffix in SUFFIXES[family.type])


def queries() -> Iterator[tuple[str, str]]:
    """Where an expression stands, and the expression."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for path in (ALERTS, *MANIFESTS.rglob("*.yaml")):
        yield path.stem, path.read_text(encoding="utf-8")


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def test_every_metric_that_is_asked_for_exists() -> None:
    named = {(where, name) for where, query in queries() for name in re.findall(r"\bspecpair_\w+", query)}
    assert len(named) > 30
    assert {(where, name) for where, name in named if name not in series()} == set()


def test_names_are_vllm_s_where_vllm_has_the_thing() -> None:
    """Those that dashboards of vLLM ask for, behind its own prefix."""
    expected = {
        *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total"),
        *("generation_tokens_total", "request_success_total", "iteration_tokens_total_bucket"),
        *("time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket"),
        *("e2e_request_latency_seconds_bucket", "request_queue_time_seconds_bucket"),
        *("spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total"),
        *("spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens_per_pos_total"),
    }
    assert {f"specpair_{name}" for name in expected} <= series()


def test_dashboard_takes_its_data_source_from_a_variable() -> None:
    board = dashboard()
    variables = {each["name"]: each["type"] for each in board["templating"]["list"]}
    assert variables == {"datasource": "datasource", "model_name": "query", "instance": "query"}
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    asked = [*board["panels"], *targets]
    assert {each["datasource"]["uid"] for each in asked} == {"${datasource}"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@needs_promtool
def test_prometheus_accepts_the_alert_rules() -> None:
    check(ALERTS)


@needs_promtool
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    given = {"$__rate_interval": "5m", "$model_name": ".*", "$instance": ".*"}
    rules: list[dict[str, str]] = []
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for variable, value in given.items():
                query = query.replace(variable, value)
            rules.append({"record": f"q{len(rules)}", "expr": query})
    path = tmp_path / "rules.json"  # JSON is YAML, too
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    check(path)


@needs_promtool
def test_prometheus_accepts_the_query_that_scales(tmp_path: Path) -> None:
    text = (MANIFESTS / "components" / "autoscaling" / "scaledobject.yaml").read_text(encoding="utf-8")
    [trigger] = yaml.safe_load(text)["spec"]["triggers"]
    path = tmp_path / "rules.json"
    rules = [{"record": "q", "expr": trigger["metadata"]["query"]}]
    path.write_text(json.dumps({"groups": [{"name": "keda", "rules": rules}]}), encoding="utf-8")
    check(path)


def check(rules: Path) -> None:
    assert PROMTOOL is not None
    ran = subprocess.run([PROMTOOL, "check", "rules", str(rules)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
