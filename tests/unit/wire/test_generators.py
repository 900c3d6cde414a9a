from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jars
import make_messages
import pytest
from generated import write_or_check

from karrow.wire.table import entries


def definition(versions: str, *fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "request",
        "apiKey": 7,
        "name": "ThingRequest",
        "validVersions": versions,
        "flexibleVersions": "none",
        "fields": list(fields),
        **more,
    }


def field(name: str, versions: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "int32", "versions": versions, **more}


def combined(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    (message,) = make_messages.combine([new], [old])
    return make_messages.message_entry(message)


def test_comments_go_and_slashes_in_strings_stay() -> None:
    text = '{"a": "http://x", // gone\n "b": "\\"//\\"" // gone "too"\n}'
    assert json.loads(make_messages.strip_comments(text)) == {"a": "http://x", "b": '"//"'}


def test_old_release_gives_only_the_versions_the_new_one_dropped() -> None:
    new = definition("2-3", field("A", "0+"), field("C", "3+"))
    old = definition("0-2", field("A", "0+"), field("B", "1"), field("Renamed", "2+"))
    entry = combined(new, old)
    assert entry["versions"] == "0-3"
    assert entry["fields"] == [["a", "int32", "0+"], ["b", "int32", "1"], ["c", "int32", "3+"]]


def test_merged_fields_keep_the_order_of_both_releases() -> None:
    new = definition("1", field("B", "0+"), field("D", "0+"))
    old = definition("0", field("A", "0"), field("B", "0+"), field("C", "0"), field("D", "0+"))
    names = [name for name, *_ in combined(new, old)["fields"]]
    assert names == ["a", "b", "c", "d"]


def test_fields_in_another_order_are_noticed() -> None:
    new = definition("1", field("B", "0+"), field("A", "0+"))
    old = definition("0", field("A", "0+"), field("B", "0+"))
    with pytest.raises(ValueError, match="order"):
        combined(new, old)


@pytest.mark.parametrize("fact", [{"type": "int64"}, {"default": "5"}])
def test_releases_that_disagree_are_noticed(fact: dict[str, Any]) -> None:
    new, old = definition("1", field("A", "0+")), definition("0", field("A", "0+", **fact))
    with pytest.raises(ValueError, match="disagree"):
        combined(new, old)


def test_ranges_differ_by_release() -> None:
    new = definition("1-2", field("A", "0+", nullableVersions="2+"))
    old = definition("0", field("A", "0+", nullableVersions="0+"))
    with pytest.raises(ValueError, match="hole"):
        combined(new, old)


def test_preview_versions_of_both_releases_are_recorded() -> None:
    new = definition("1-2", field("A", "0+"))
    old = definition("0", field("A", "0+"), latestVersionUnstable=True)
    assert combined(new, old)["unstable"] == "0"
    new["latestVersionUnstable"] = True
    assert combined(new, old)["unstable"] == "0,2"


def test_renamed_api_goes_by_its_new_name() -> None:
    new = definition("0-1", field("A", "0+"))
    old = definition("0", field("A", "0+"), name="OldThingRequest")
    assert [message.name for message in make_messages.combine([new], [old])] == ["ThingRequest"]


@pytest.mark.parametrize("name", ["Fields", "From", "UnknownTags"])
def test_names_that_would_clash_are_noticed(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be called"):
        make_messages.combine([definition("0", field(name, "0+"))], [])


def test_table_has_no_prose() -> None:
    assert "about" not in json.dumps(entries()).replace("_", " ").split()


def test_check_finds_any_difference(tmp_path: Path) -> None:
    target = tmp_path / "made.txt"
    write_or_check({target: "one\ntwo\n"}, [])
    write_or_check({target: "one\ntwo\n"}, ["--check"])
    for text in ("one\n", "one\ntwo\nthree\n", "one\ntwo", ""):
        with pytest.raises(SystemExit, match=r"made\.txt: out of date"):
            write_or_check({target: text}, ["--check"])
    assert target.read_text() == "one\ntwo\n"


def test_missing_program_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("KARROW_CACHE", str(tmp_path))
    with pytest.raises(jars.JarError, match=r"^mvn not found: install Maven$"):
        jars.kafka_clients("0.0.0")
    with pytest.raises(jars.JarError, match=r"^java not found: install Java 17 or newer$"):
        jars.program("java")
