"""Makes src/karrow/errors/codes.py and errors/__init__.py from Kafka's own table of error codes.

The table is read by ErrorCodes.java out of the newest kafka-clients jar; the names that
errors/__init__.py exports beside the codes are those errors/tree.py and errors/lookup.py list.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from generated import write_or_check
from jars import JSON_ARTIFACTS, NEW_KAFKA, ROOT, JarError, jar, kafka_clients, program

FOLDER = ROOT / "src/karrow/errors"
SOURCE = Path(__file__).with_name("ErrorCodes.java")

COORDINATOR = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
# Another instance took over. FENCED_LEADER_EPOCH and FENCED_MEMBER_EPOCH are not among them: the
# same client recovers from those by refreshing or joining again.
FENCED = {"FENCED_INSTANCE_ID", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
# Kafka's own class is not of the stale kind, yet the controller is found through the metadata.
# A broker that is just coming or going may lead, or coordinate, while it is not listed.
METADATA = {"BROKER_NOT_AVAILABLE", "NOT_CONTROLLER"}


class Code(NamedTuple):
    """One error code and Kafka's facts about it."""

    number: int
    name: str
    facts: frozenset[str]

    @property
    def class_name(self) -> str:
        """NOT_CONTROLLER -> NotController."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def mixins(self) -> list[str]:
        """The kinds of error it is, as classes of tree.py."""
        kinds = {
            "StaleMetadata": "metadata" in self.facts or self.name in METADATA,
            "StaleCoordinator": self.name in COORDINATOR,
            "AuthorizationError": "authorization" in self.facts,
            "Fenced": self.name in FENCED,
        }
        return [kind for kind, applies in kinds.items() if applies]


def read_codes() -> list[Code]:
    """Kafka's table, by number."""
    jars = [kafka_clients(NEW_KAFKA), *map(jar, JSON_ARTIFACTS)]
    command = [program("java"), "-cp", os.pathsep.join(map(str, jars)), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise JarError(f"{SOURCE.name} failed: {done.stderr.strip().splitlines()[0]}")
    rows = (line.split(" ") for line in done.stdout.splitlines())
    return sorted(Code(int(row[0]), row[1], frozenset(row[2].split(","))) for row in rows)


def class_source(code: Code) -> str:
    """One class of codes.py."""
    bases = ", ".join([*code.mixins, "BrokerError"])
    words = code.name.replace("_", " ").capitalize()
    lines = [f"class {code.class_name}({bases}):", f'    """{words}."""', ""]
    lines += [f"    code = {code.number}", f'    name = "{code.name}"']
    if "retriable" in code.facts:
        lines.append("    retriable = True")
    return "\n".join(lines)


def codes_source(codes: list[Code]) -> str:
    """The whole of codes.py."""
    imports = list({"BrokerError", *(mixin for code in codes for mixin in code.mixins)})
    names = "".join(f"        {code.class_name},\n" for code in codes)
    parts = [
        '"""Kafka\'s error codes as classes. Made by tools/make_errors.py; do not edit."""',
        "",
        "from __future__ import annotations",
        "",
        import_source("tree", imports),
        "",
        "",
        "\n\n\n".join(class_source(code) for code in codes),
        "",
        "",
        "BY_CODE: dict[int, type[BrokerError]] = {",
        "    kind.code: kind",
        "    for kind in (",
        f"{names}    )",
        "}",
        "",
    ]
    return "\n".join(parts)


def exported(path: Path) -> list[str]:
    """The ``__all__`` of a hand-written module, without importing it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    raise ValueError(f"{path} has no __all__")


def import_source(module: str, names: list[str]) -> str:
    """One import statement, in the order ruff would give it."""
    classes = sorted((name for name in names if name[0].isupper()), key=str.casefold)
    ordered = [*classes, *sorted(name for name in names if name[0].islower())]
    one_line = f"from karrow.errors.{module} import {', '.join(ordered)}"
    if len(one_line) <= 100:
        return one_line
    lines = "".join(f"    {name},\n" for name in ordered)
    return f"from karrow.errors.{module} import (\n{lines})"


def package_source(codes: list[Code]) -> str:
    """The whole of errors/__init__.py."""
    modules = {
        "codes": [code.class_name for code in codes],
        "lookup": exported(FOLDER / "lookup.py"),
        "tree": exported(FOLDER / "tree.py"),
    }
    names = [name for group in modules.values() for name in group]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"names used twice: {sorted(twice)}")
    ordered = sorted(name for name in names if name[0].isupper())
    ordered += sorted(name for name in names if name[0].islower())
    listing = "".join(f'    "{name}",\n' for name in ordered)
    parts = [
        '"""Every error karrow raises, and the broker\'s error codes as classes.',
        "",
        "Made by tools/make_errors.py; edit tree.py or lookup.py.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *(import_source(module, group) for module, group in modules.items()),
        "",
        f"__all__ = [\n{listing}]",
        "",
    ]
    return "\n".join(parts)


def main() -> None:
    try:
        codes = read_codes()
    except JarError as error:
        sys.exit(str(error))
    files = {
        FOLDER / "codes.py": codes_source(codes),
        FOLDER / "__init__.py": package_source(codes),
    }
    write_or_check(files, sys.argv[1:])


if __name__ == "__main__":
    main()
