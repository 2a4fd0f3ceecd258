"""Labelled examples, and the command that measures a model on them."""

import subprocess
import sys


def evaluate(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ostraka", "eval", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def examples() -> list[dict[str, object]]:
    told: list[dict[str, object]] = []
    for number in range(12):
        state, source = f"state {number // 2}" + "x" * number, "even" if number % 2 == 0 else "odd"
        told.append({"state": state, "question": "yes?", "type": "noul", "label": number % 3 == 0, "source": source})
        told.append(
            {
                "state": state,
                "question": "which?",
                "type": "choice",
                "label": 1,
                "options": ["a", "b", "c"],
                "source": source,
            }
        )
        told.append(
            {
                "state": state,
                "question": "how?",
                "type": "score",
                "label": 2,
                "levels": ["l", "m", "h"],
                "source": source,
            }
        )
    return told
