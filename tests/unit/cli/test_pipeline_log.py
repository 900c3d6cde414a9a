"""Where `karrow pipeline` leaves what Spark says: nobody has to look for it."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from karrow.cli import pipeline
from karrow.errors import ConfigError, KarrowError, StateError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def end_with(error: BaseException | None, log: Path | None = None) -> Path:
    """The log of a command that ends like that."""
    with ExitStack() as stack:
        if error is not None:
            stack.enter_context(pytest.raises(type(error)))
        used = stack.enter_context(pipeline._log(argparse.Namespace(log=log)))
        used.write_text("Spark speaks")
        if error is not None:
            raise error
    return used


@pytest.mark.parametrize("error", [None, ConfigError("a key is wrong")])
def test_nothing_is_left_when_it_does_not_matter(
    error: KarrowError | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not end_with(error).exists()
    assert capsys.readouterr().err == ""


def test_an_error_keeps_its_hint_and_names_the_log() -> None:
    with_hint, without = StateError("it failed", hint="do this"), StateError("it failed")
    first, second = end_with(with_hint), end_with(without)
    assert str(with_hint) == f"it failed; do this; what Spark says is in {first}"
    assert str(without) == f"it failed; what Spark says is in {second}"
    assert first.read_text() == "Spark speaks"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("no space"), ValueError("?")])
def test_the_log_of_any_other_end_is_named(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    log = end_with(error)
    assert log.read_text() == "Spark speaks"
    assert capsys.readouterr().err == f"karrow: what Spark says is in {log}\n"


def test_a_log_that_was_asked_for_is_used_and_stays(folder: Path) -> None:
    wanted, error = folder / "spark.log", StateError("it failed")
    assert end_with(error, wanted) == wanted
    assert wanted.exists()
    assert str(error) == "it failed"
