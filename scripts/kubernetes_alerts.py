"""Writes the alert rules of docs/monitoring as a PrometheusRule, which Kustomize cannot do.

python -m scripts.kubernetes_alerts
"""

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
ALERTS = _ROOT / "docs" / "monitoring" / "alerts.yml"
RULE = _ROOT / "deploy" / "kubernetes" / "components" / "monitoring" / "prometheusrule.yaml"
_HEAD = """# Made of docs/monitoring/alerts.yml by `python -m scripts.kubernetes_alerts`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: verifier
  namespace: specpair
spec:
"""


def rule(alerts: str) -> str:
    """The object, in YAML. `alerts`: a file of rules as Prometheus reads it, with comments before `groups:` only."""
    lines = alerts[alerts.index("groups:") :].splitlines()
    return _HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines)


if __name__ == "__main__":
    RULE.write_text(rule(ALERTS.read_text(encoding="utf-8")), encoding="utf-8")
