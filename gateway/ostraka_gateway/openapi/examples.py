"""One request of each kind, with an answer, for the document. Tests send the requests."""

from collections.abc import Mapping

_TICKET = "My parcel is four days late and nobody answers my mails."
_NOUL = {"type": "noul", "instructions": "Is the customer waiting for a delivery?"}
_CHOICE = {
    "type": "choice",
    "instructions": "Which team should handle this?",
    "criteria": {"billing": "charges and refunds", "shipping": "parcels", "other": None},
}
_SCORE = {"type": "score", "instructions": "How upset is the customer?", "criteria": ["calm", "annoyed", "furious"]}


def _system_one(question: Mapping[str, object]) -> dict[str, object]:
    return {"model": "jev-latest", "state": _TICKET, "questions": {"q": question}}


SYSTEM_ONE_REQUESTS: dict[str, object] = {
    "noul": {"summary": "A yes/no question", "value": _system_one(_NOUL)},
    "choice": {"summary": "One of several options", "value": _system_one(_CHOICE)},
    "score": {"summary": "A place on a scale", "value": _system_one(_SCORE)},
    "several": {
        "summary": "Questions of each kind about an object",
        "value": {
            "model": "jev-latest",
            "state": {"subject": "Where is it?", "body": _TICKET, "tags": ["parcel"]},
            "questions": {"waiting": _NOUL, "team": _CHOICE, "anger": _SCORE},
        },
    },
}
SYSTEM_ONE_RESPONSES: dict[str, object] = {
    "several": {
        "value": {
            "model": "ostraka-135m",
            "answers": {
                "waiting": {"type": "noul", "noul": 0.75},
                "team": {
                    "type": "choice",
                    "choice": "shipping",
                    "probabilities": {"billing": 0.25, "shipping": 0.5, "other": 0.25},
                    "confidence": 0.25,
                },
                "anger": {
                    "type": "score",
                    "score": 1.25,
                    "legend": {"0": "calm", "1": "annoyed", "2": "furious"},
                    "probabilities": {"0": 0.25, "1": 0.25, "2": 0.5},
                    "confidence": 0.0,
                },
            },
            "usage": {"input_tokens": 312, "output_tokens": 0},
        }
    }
}
DECISIONS_REQUESTS: dict[str, object] = {
    "decisions": {
        "summary": "OpenAI's form: a list of questions",
        "value": {
            "model": "jev-latest",
            "input": [{"role": "user", "content": [{"type": "input_text", "text": _TICKET}]}],
            "questions": [
                {"type": "predicate", "name": "waiting", "instructions": "The customer is waiting for a delivery."},
                {
                    "type": "choice",
                    "name": "team",
                    "instructions": "Which team should handle this?",
                    "choices": [{"value": "billing"}, {"value": "shipping", "description": "parcels"}],
                },
                {
                    "type": "score",
                    "name": "anger",
                    "instructions": "How upset is the customer?",
                    "levels": [{"label": "calm"}, {"label": "annoyed"}, {"label": "furious"}],
                },
            ],
        },
    }
}
DECISIONS_RESPONSES: dict[str, object] = {
    "decisions": {
        "value": {
            "model": "ostraka-135m",
            "answers": [
                {"type": "predicate", "name": "waiting", "probability": 0.75},
                {
                    "type": "choice",
                    "name": "team",
                    "choice": "shipping",
                    "confidence": 0.5,
                    "probabilities": [
                        {"value": "billing", "probability": 0.25},
                        {"value": "shipping", "probability": 0.75},
                    ],
                },
                {
                    "type": "score",
                    "name": "anger",
                    "score": 1.25,
                    "confidence": 0.0,
                    "probabilities": [
                        {"value": 0, "label": "calm", "probability": 0.25},
                        {"value": 1, "label": "annoyed", "probability": 0.25},
                        {"value": 2, "label": "furious", "probability": 0.5},
                    ],
                },
            ],
            "usage": {
                "input_tokens": 298,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 298,
            },
        }
    }
}
