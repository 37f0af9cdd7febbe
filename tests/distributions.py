"""Distributions made for a test: what pip would install."""

from collections.abc import Mapping
from pathlib import Path


def distribute(
    site: Path, name: str, version: str, entry_points: Mapping[str, Mapping[str, str]], module: str = ""
) -> None:
    """Write a distribution with one module, of the same name, into a folder of sys.path.

    `entry_points`: by groups and names, what they refer to. `module`: the module's code.
    """
    information = site / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    sections = (
        "\n".join([f"[{group}]", *(f"{each} = {value}" for each, value in values.items())])
        for group, values in entry_points.items()
    )
    (information / "entry_points.txt").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    (site / f"{name.replace('-', '_')}.py").write_text(module, encoding="utf-8")
