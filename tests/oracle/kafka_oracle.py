"""Kafka's own serializers and assignors, asked over a pipe."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from jars import json_class_path, program

from karrow.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karrow.aio.groups.assignment import Subscription
    from karrow.wire.structs import Struct
    from karrow.wire.table import Field, Schema

SOURCE = Path(__file__).with_name("Oracle.java")
# Where a message has its version: a question to an assignor.
ASSIGN = -1


class RefusedError(Exception):
    """Kafka would not encode the message; the text is its reason."""


class UnknownError(Exception):
    """This release of Kafka does not have the message or the version."""


class Oracle:
    """One Java process over the kafka-clients jar of one release."""

    def __init__(self, release: str) -> None:
        # One class per message: most of the time would go into compiling what runs once.
        options = ["-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]
        command = [program("java"), *options, "-cp", json_class_path(release), str(SOURCE)]
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes():
            pipe.close()
        self._process.wait(timeout=30)
        self._complaints.close()

    def encode(self, facts: Schema, version: int, message: Struct) -> bytes:
        """The bytes Kafka makes of a message."""
        name = facts.name if facts.kind == "data" else f"{facts.name}Data"
        return self._ask(version, name, as_json(message, version))

    def assign(
        self, name: str, cluster: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Who gets what, says the assignor with this class name."""
        described = {member: _described(one) for member, one in members.items()}
        answer = self._ask(ASSIGN, name, {"cluster": dict(cluster), "members": described})
        return {
            member: sorted(TopicPartition(*one) for one in partitions)
            for member, partitions in json.loads(answer).items()
        }

    def _ask(self, version: int, name: str, content: dict[str, Any]) -> bytes:
        question = b"".join(
            (
                version.to_bytes(2, "big", signed=True),
                len(name).to_bytes(2, "big"),
                name.encode(),
                json.dumps(content).encode(),
            )
        )
        to_java, from_java = self._pipes()
        to_java.write(len(question).to_bytes(4, "big") + question)
        to_java.flush()
        answer = from_java.read(int.from_bytes(from_java.read(4), "big"))
        if not answer:
            self._complaints.seek(0)
            raise RuntimeError(f"Java has ended: {self._complaints.read().decode()}")
        status, found = answer[0], answer[1:]
        if status:
            raise (RefusedError, UnknownError)[status - 1](found.decode())
        return found

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout


def _described(member: Subscription) -> dict[str, Any]:
    data = member.user_data
    return {
        "topics": member.topics,
        "owned": member.owned_partitions,
        "userData": None if data is None else base64.b64encode(data).decode(),
        "generation": member.generation,
        "instanceId": member.instance_id,
    }


def as_json(message: Struct, version: int) -> dict[str, Any]:
    """A message as Kafka's JSON converters want it: exactly the version's fields, in camelCase."""
    return {
        camel_case(field.name): _value(field, getattr(message, field.name), version)
        for field in message.fields
        if version in field.versions
    }


def camel_case(name: str) -> str:
    """foo_bar -> fooBar."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _value(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_value(field, item, version) for item in value]
    if field.is_struct:
        return as_json(value, version)
    if field.type in ("bytes", "records"):
        return base64.b64encode(value).decode()
    if field.type == "uuid":
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return value
