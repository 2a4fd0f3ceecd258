"""The reliability plot as a PNG: the only user of matplotlib, which the extra `eval` brings."""

from pathlib import Path
from typing import Any

from ostraka.evaluation.report import Report
from ostraka.evaluation.tables import TITLES
from ostraka_shared.errors import ConfigError

PANEL_INCHES = 3.6
DPI = 120


def require_plotting() -> None:
    """Raises ConfigError where the plot could not be drawn: before the model is asked, not after."""
    try:
        import matplotlib.figure  # noqa: F401, PLC0415
    except ImportError as bad:
        raise ConfigError(
            "--plot needs matplotlib; in the clone: .venv/bin/pip install -c constraints.txt -e '.[eval]'"
        ) from bad


def draw_reliability(reports: dict[str, Report], output: Path) -> None:
    """One panel a form of question, one line a report; a point's area grows with its examples."""
    from matplotlib.figure import Figure  # noqa: PLC0415  an extra

    forms = [form for form in TITLES if any(form in _forms(report) for report in reports.values())]
    figure = Figure(figsize=(PANEL_INCHES * len(forms), PANEL_INCHES + 0.6), layout="constrained")
    panels = figure.subplots(1, len(forms), squeeze=False)[0]
    for form, panel in zip(forms, panels, strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for name, report in reports.items():
            if form in _forms(report):
                _line(panel, _forms(report)[form]["reliability"], name)
        said = "P(yes)" if form == "noul" else "P(decided)"
        panel.set(title=TITLES[form], xlabel=f"said: {said}", ylabel="came true", xlim=(0, 1), ylim=(0, 1))
        panel.set_aspect("equal")
    figure.legend(*_legend(panels), loc="outside lower center", fontsize="small")
    figure.savefig(output, format="png", dpi=DPI)


def _legend(panels: Any) -> tuple[list[Any], list[str]]:
    """Each report once, whichever panels it is in."""
    named = {label: line for panel in panels for line, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    return list(named.values()), list(named)


def _line(panel: Any, bins: list[dict[str, Any]], name: str) -> None:
    filled = [one for one in bins if one["count"]]
    total = sum(one["count"] for one in filled)
    said, came = ([one[key] for one in filled] for key in ("mean_probability", "share_true"))
    (line,) = panel.plot(said, came, linewidth=1, label=name)
    panel.scatter(said, came, s=[8 + 200 * one["count"] / total for one in filled], color=line.get_color())


def _forms(report: Report) -> dict[str, Any]:
    return report["forms"]  # type: ignore[return-value]
