"""The dashboard and the alert rules in docs/monitoring, and deploy/kubernetes, name metrics that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from backends.scripted import ScriptedBackend
from drafter_client.serve.metrics import DrafterMetrics, PairVerifierGauges
from gateway.balancing import POLICIES
from gateway.router.app import NodeCollector, dispatch_times
from gateway.router.forwarding import Forwarding, SessionNodes
from gateway.router.nodes import Fleet
from gateway.router.watch import Watch
from specpair.http_service.certificate import Certificate
from specpair.http_service.observability.metrics import RequestMetrics, ServiceMetrics
from tests.paths import ROOT
from verifier_server.service import Service
from verifier_server.settings import Settings

FOLDER = ROOT / "docs" / "monitoring"
MANIFESTS = ROOT / "deploy" / "kubernetes"
DASHBOARD, ALERTS = FOLDER / "grafana-dashboard.json", FOLDER / "alerts.yml"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "info": ("_info",)}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed: it comes with Debian's package prometheus"
)


@cache
def series() -> frozenset[str]:
    """The names of all series of the two ends and of the router."""
    service = Service(Settings(backend="scripted"), ScriptedBackend())
    service.loader.start()
    service.loader.wait()
    drafter = ServiceMetrics(lambda: "m")
    DrafterMetrics(drafter)
    drafter.registry.register(PairVerifierGauges(lambda: "m", lambda: []))
    router = RequestMetrics(lambda: "m")
    router.certificate_ends(cast(Certificate, SimpleNamespace(ends=0.0)))
    dispatched = dispatch_times(router)
    fleet = Fleet()
    watch, sessions, policy = Watch(fleet, None, 1.0), SessionNodes(1), POLICIES["hash"]()
    passing = Forwarding(fleet, watch, sessions, policy, None, body_limit=1, body_patience=1.0, dispatched=dispatched)
    router.registry.register(NodeCollector(passing))
    families = [each for part in (service.metrics, drafter, router) for each in part.registry.collect()]
    service.stop()
    return frozenset(family.name + suffix for family in families for suffix in SUFFIXES[family.type])


def queries() -> Iterator[tuple[str, str]]:
    """Where an expression stands, and the expression."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):  # a row has none
            yield panel["title"], target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
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


def test_a_panel_asks_one_kind_of_service_only() -> None:
    """Each text counts at the verifier and at its drafter: a sum over both would have it twice."""
    rows: dict[str, set[str]] = {}
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            asked = rows[panel["title"]] = set()
        for target in panel.get("targets", []):
            asked |= set(re.findall(r'instance=~"\$(\w+)"', target["expr"]))
            assert "instance=~" in target["expr"], panel["title"]
    assert rows == {"Verifiers": {"instance"}, "Drafters": {"drafter"}, "Router": {"router", "instance"}}


@needs_promtool
def test_prometheus_accepts_the_alert_rules() -> None:
    check(ALERTS)


@needs_promtool
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    given = {"$__rate_interval": "5m", "$model_name": ".*", "$instance": ".*", "$drafter": ".*", "$router": ".*"}
    rules: list[dict[str, str]] = []
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
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


# What Prometheus has scraped when an alert fires: series, and their values once a minute.
_NODE = 'instance="r", model_name="m", node="n"'
FIRING: dict[str, dict[str, str]] = {
    "SpecpairDown": {'up{job="specpair", instance="v"}': "0x60"},
    "SpecpairFailed": {'specpair_status{status="failed", instance="v"}': "1x60"},
    "SpecpairOverloaded": {'specpair_status{status="overloaded", instance="v"}': "1x60"},
    "SpecpairQueueWait": {
        'specpair_request_queue_time_seconds_bucket{instance="v", le="1.0"}': "0+1x60",
        'specpair_request_queue_time_seconds_bucket{instance="v", le="2.5"}': "0+60x60",
        'specpair_request_queue_time_seconds_bucket{instance="v", le="+Inf"}': "0+60x60",
    },
    "SpecpairLowAcceptance": {
        'specpair_spec_decode_num_accepted_tokens_total{instance="v", model_name="m"}': "0+10x60",
        'specpair_spec_decode_num_draft_tokens_total{instance="v", model_name="m"}': "0+600x60",
    },
    "SpecpairEvictions": {'specpair_kv_evictions_total{instance="v"}': "0+60x60"},
    "SpecpairVerifierAway": {'specpair_verifier_ready{instance="d", verifier="v"}': "0x60"},
    "SpecpairNoNode": {f"specpair_router_node_ready{{{_NODE}}}": "0x60"},
    "SpecpairNodeLost": {f"specpair_router_node_ready{{{_NODE}}}": "0x60"},
    "SpecpairCertificateEnds": {'specpair_tls_certificate_not_after_seconds{instance="v"}': "600000+0x60"},
    "SpecpairNodeFailures": {f"specpair_router_node_failures_total{{{_NODE}}}": "0+60x60"},
    "SpecpairRouterRetries": {
        'specpair_router_repeated_total{instance="r"}': "0+60x60",
        f"specpair_router_node_requests_total{{{_NODE}}}": "0+120x60",
    },
    "SpecpairRouterSlow": {
        'specpair_router_dispatch_seconds_bucket{instance="r", le="0.5"}': "0+1x60",
        'specpair_router_dispatch_seconds_bucket{instance="r", le="1.0"}': "0+60x60",
        'specpair_router_dispatch_seconds_bucket{instance="r", le="+Inf"}': "0+60x60",
    },
}


def test_it_is_said_of_every_alert_when_it_fires() -> None:
    assert set(re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))) == set(FIRING)


@needs_promtool
def test_alerts_fire(tmp_path: Path) -> None:
    """After an hour of the series, by name alone: labels and texts are as they are."""
    cases = []
    for alert, given in FIRING.items():
        shown = {"expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})', "eval_time": "59m"}
        series = [{"series": name, "values": values} for name, values in given.items()]
        expected = [{"labels": "{}", "value": 1}]
        cases.append(
            {"interval": "1m", "input_series": series, "promql_expr_test": [shown | {"exp_samples": expected}]}
        )
    path = tmp_path / "tests.json"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": cases}), encoding="utf-8")
    assert PROMTOOL is not None
    ran = subprocess.run([PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def check(rules: Path) -> None:
    assert PROMTOOL is not None
    ran = subprocess.run([PROMTOOL, "check", "rules", str(rules)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
