"""What a newcomer can hold in his head: no module, function or class grows beyond it."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("shared", "gateway", "worker", "deploy", "benchmarks", "training", "tests")
MODULE_LINES = 400
FUNCTION_LINES = 50
CLASS_METHODS = 12
NOT_ALL_OURS = {"PlainProtocol", "BoundedProtocol"}
"""Most of their methods are what uvicorn's protocol and its parser call."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Without the expressions in them, where nothing is defined and nearly all nodes are."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            yield from statements(node)


def too_large(name: str, text: str) -> Iterator[str]:
    if (lines := text.count("\n")) > MODULE_LINES:
        yield f"{name} has {lines} lines"
    for node in statements(ast.parse(text)):
        if isinstance(node, Function) and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES:
            yield f"{name}: {node.name} has {lines} lines"
        # A test's machine or world is a list of what may happen: it is as long as that.
        if isinstance(node, ast.ClassDef) and not name.startswith("tests/") and node.name not in NOT_ALL_OURS:
            methods = sum(isinstance(each, Function) for each in node.body)
            if methods > CLASS_METHODS:
                yield f"{name}: {node.name} has {methods} methods"


def test_nothing_is_too_large_to_be_held_in_mind() -> None:
    found = dict(modules())
    assert len(found) > 300
    assert [each for name, text in found.items() for each in too_large(name, text)] == []


def test_what_is_too_large_is_found() -> None:
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(CLASS_METHODS + 1))
    long_function = "def f():\n" + "    x = 1\n" * FUNCTION_LINES
    assert list(too_large("gateway/a.py", f"class A:\n{methods}")) == ["gateway/a.py: A has 13 methods"]
    assert list(too_large("tests/a.py", f"class A:\n{methods}{long_function}")) == ["tests/a.py: f has 51 lines"]
    assert list(too_large("a.py", "\n" * (MODULE_LINES + 1))) == ["a.py has 401 lines"]
