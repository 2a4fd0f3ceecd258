"""docs/operations.md names every event that is logged and every metric, and none that is not."""

import ast
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ostraka_gateway.figures import GatewayFigures, merge
from ostraka_gateway.metrics import Metrics

ROOT = Path(__file__).parents[3]
PACKAGES = ("gateway/ostraka_gateway", "worker/ostraka_worker", "shared/ostraka_shared", "deploy/ostraka")
LEVELS = frozenset({"debug", "info", "warning", "error", "exception"})


def is_logging(call):
    """`log.warning(...)`, or `say(...)` where the level is chosen first."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="log"), attr=level):
            return level in LEVELS
        case ast.Name(id="say"):
            return True
    return False


def events_of(source):
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and is_logging(node))
    words = (node.value for call in calls for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant))
    return {word for word in words if isinstance(word, str)}


def logged_events():
    return {
        event
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "log." in (source := path.read_text(encoding="utf-8"))
        for event in events_of(source)
    }


def exposed_metrics():
    nothing = merge([GatewayFigures("gateway", 1, "ready", 0, 0, 0, 0, {}, ())])
    families = text_string_to_metric_families(Metrics().render(nothing).decode())
    return {f.name + "_total" * (f.type == "counter") for f in families if not f.name.endswith("_created")}


def first_cells(heading):
    """What the first column of the section's tables has between backquotes."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_an_event_is_found_however_it_is_logged():
    source = 'log.info("a" if x else "b", of=1)\nsay("c", phase="d")\nother.info("e")\nlog.bind("f")'
    assert events_of(source) == {"a", "b", "c"}


def test_every_event_is_in_the_table_and_no_other():
    assert first_cells("Events") == logged_events()


def test_every_metric_is_in_the_table_and_no_other():
    assert first_cells("Metrics") == exposed_metrics()
