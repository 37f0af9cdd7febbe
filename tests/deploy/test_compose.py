"""The compose file: ports, paths, variables and waits fit the images, the settings and the files that it mounts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.docker.check_dashboard import WITH_PROFILE, as_process
from gateway.router.settings import from_flags as router_settings
from tests.deploy.dockerfile import FOLDER, stages
from tests.paths import ROOT
from tests.settings_names import SETTINGS, is_setting

COMPOSE = FOLDER / "compose.yaml"
OURS = ("verifier", "drafter", "router")
PROFILE = ("verifier-2", "verifier-3", "router")
KEYS = {"VERIFIER_API_KEY": "v", "DRAFTER_SERVE_KEY": "d", "GRAFANA_PASSWORD": "g"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def services() -> dict[str, Any]:
    found: dict[str, Any] = read(COMPOSE)["services"]
    return found


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@pytest.mark.parametrize("name", [*OURS, *PROFILE[:2], "prometheus", "grafana"])
def test_a_service_can_write_to_its_volumes_only(name: str) -> None:
    service = services()[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["tmpfs"] == ["/tmp"]
    assert service["security_opt"] == ["no-new-privileges:true"] and "privileged" not in service
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert volume.endswith(":ro") or source in read(COMPOSE)["volumes"], volume


@pytest.mark.parametrize("name", OURS)
def test_our_services_are_what_the_dockerfile_makes(name: str) -> None:
    service = services()[name]
    folder = (FOLDER / service["build"]["context"]).resolve()
    assert folder == ROOT and (folder / service["build"]["dockerfile"]).exists()
    stage = stages()[service["build"]["target"]]
    assert [port.rpartition(":")[2] for port in service["ports"]] == stage.of("EXPOSE")
    variables = [each for each in service["environment"] if not is_setting(each)]
    assert variables == [] and stage.of("HEALTHCHECK")
    mounted = [volume.split(":")[-2 if volume.endswith(":ro") else -1] for volume in service.get("volumes", [])]
    assert mounted == (stages()["service"].exec_form("VOLUME") if name != "router" else [])


@pytest.mark.parametrize(
    ("name", "setting"),
    [("verifier", "VERIFIER_DRAIN_SECONDS"), ("drafter", "DRAFTER_DRAIN"), ("router", "ROUTER_DRAIN")],
)
def test_a_service_is_given_the_time_to_drain(name: str, setting: str) -> None:
    service = services()[name]
    assert seconds(service["stop_grace_period"]) >= service["environment"][setting] + 10


def test_prometheus_scrapes_our_services_under_the_name_of_the_alerts() -> None:
    [job] = read(FOLDER / "prometheus.yaml")["scrape_configs"]
    targets = [target for each in job["static_configs"] for target in each["targets"]]
    assert targets == [f"{name}:{port(name)}" for name in ("verifier", "drafter")]
    looked_up = {name: each["port"] for each in job["dns_sd_configs"] for name in each["names"]}
    assert looked_up == {name: int(port(name)) for name in PROFILE}
    assert all(services()[name]["environment"][f"{name.upper()}_METRICS_OPEN"] == "yes" for name in OURS)
    assert f'job="{job["job_name"]}"' in (ROOT / "docs/monitoring/alerts.yml").read_text(encoding="utf-8")
    files = [volume.split(":")[1] for volume in services()["prometheus"]["volumes"]]
    assert {"/etc/prometheus/prometheus.yml", "/etc/prometheus/alerts.yml"} <= set(files)
    assert read(FOLDER / "prometheus.yaml")["rule_files"] == ["alerts.yml"]


def port(name: str) -> str:
    return stages()[name.partition("-")[0]].of("EXPOSE")[0]


def test_the_profile_is_a_router_in_front_of_all_verifiers() -> None:
    assert {name for name, service in services().items() if service.get("profiles") == ["router"]} == {*PROFILE}
    verifiers = [name for name in services() if name.startswith("verifier")]
    [*nodes] = router_settings(services()["router"]["command"], {})[1]
    assert [node.url for node in nodes] == [f"http://{name}:{port(name)}" for name in verifiers]
    for name in verifiers[1:]:
        assert {**services()[name], "profiles": 0, "ports": 0} == {**services()["verifier"], "profiles": 0, "ports": 0}
        assert services()[name]["ports"] == []
    assert f"DRAFTER_VERIFIER={WITH_PROFILE['DRAFTER_VERIFIER']}" in (FOLDER / ".env.example").read_text("utf-8")
    assert as_process("drafter", WITH_PROFILE)[1]["DRAFTER_VERIFIER"] == f"http://router:{port('router')}"
    assert as_process("drafter")[1]["DRAFTER_VERIFIER"] == f"http://verifier:{port('verifier')}"


def test_grafana_is_provisioned_with_the_dashboard() -> None:
    mounted = {volume.split(":")[1]: FOLDER / volume.split(":")[0] for volume in services()["grafana"]["volumes"]}
    [source] = read(FOLDER / "grafana/datasources/prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090" and source["isDefault"]
    [provider] = read(FOLDER / "grafana/dashboards/specpair.yaml")["providers"]
    assert (mounted[provider["options"]["path"]] / "grafana-dashboard.json").exists()
    assert mounted["/etc/grafana/provisioning"].resolve() == FOLDER / "grafana"


def test_the_example_of_the_variables_names_what_is_asked_for() -> None:
    lines = (FOLDER / ".env.example").read_text(encoding="utf-8").splitlines()
    names = {line.lstrip("#").split("=")[0] for line in lines if "=" in line and " " not in line}
    text = COMPOSE.read_text(encoding="utf-8")
    assert {*KEYS, "COMPOSE_PROFILES"} <= names and {name for name in names if name not in text} == set()
    assert all(is_setting(name) for name in names if name.startswith((*SETTINGS,)))


@pytest.mark.engine("deploy")
def test_docker_compose_reads_the_file() -> None:
    command = [
        f"{sys.prefix}/bin/docker-compose",
        "--file",
        str(COMPOSE),
        "--env-file",
        os.devnull,
        "config",
        "--quiet",
    ]
    ran = subprocess.run(command, env=os.environ | KEYS, capture_output=True, text=True)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    asked = [*command[:-2], "--profile", "router", "config", "--services"]
    chosen = subprocess.run(asked, env=os.environ | KEYS, capture_output=True, text=True)
    assert set(chosen.stdout.split()) == {*services()}, chosen.stderr
    without = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert without.returncode == 1 and "VERIFIER_API_KEY is missing a value: see .env.example" in without.stderr
