"""Every public call of Admin is tested on a real broker: that it works, and how it fails."""

from __future__ import annotations

import ast
from pathlib import Path

import karrow

HERE = Path(__file__).parent
CANNOT_FAIL = {"close"}


class Calls(ast.NodeVisitor):
    """Calls of ``admin.something()``, those under ``pytest.raises`` apart from the others."""

    def __init__(self) -> None:
        self.found: dict[bool, set[str]] = {True: set(), False: set()}
        self._must_fail = False

    def visit_With(self, node: ast.With) -> None:
        outside = self._must_fail
        raising = (isinstance(item.context_expr, ast.Call) for item in node.items)
        texts = (ast.unparse(item.context_expr) for item in node.items)
        self._must_fail |= any(raising) and any(t.startswith("pytest.raises(") for t in texts)
        self.generic_visit(node)
        self._must_fail = outside

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(value=ast.Name(id="admin"), attr=name):
                self.found[self._must_fail].add(name)
        self.generic_visit(node)


def test_every_call_has_a_success_and_a_failure() -> None:
    calls = Calls()
    for path in HERE.glob("test_admin_*.py"):
        calls.visit(ast.parse(path.read_text("utf-8")))
    public = {
        name
        for name in dir(karrow.AsyncAdmin)
        if not name.startswith("_") and callable(getattr(karrow.AsyncAdmin, name))
    }
    assert public - calls.found[False] == set()
    assert public - calls.found[True] - CANNOT_FAIL == set()
