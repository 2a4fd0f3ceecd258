"""What is not learned from: asked again and again, for early stopping, the temperature and the report."""

from collections.abc import Sequence

import numpy as np
import torch

from ostraka.answerers import Outcome
from ostraka.evaluation.asking import Refusal, read_outcome
from ostraka.evaluation.examples import Example, Prediction
from ostraka.tuning.batches import by_length, collate
from ostraka.tuning.encoding import Encoded, asked_of
from ostraka.tuning.losses import Margins
from ostraka.tuning.network import Network
from ostraka_gateway.answers import encode_response


class HeldOut:
    """`examples`, and all that is told of them, are in the batches' order."""

    def __init__(self, encoded: Sequence[Encoded]) -> None:
        self._runs = [[encoded[place] for place in run] for run in by_length(encoded)]
        self._encoded = [one for run in self._runs for one in run]
        self.examples: list[Example] = [one.example for one in self._encoded]
        self.asked = asked_of(self._encoded)
        self._ends = np.cumsum([len(one.suffixes) for one in self._encoded])[:-1]

    def margins(self, network: Network) -> Margins:
        with torch.no_grad():
            told = [network.margins(collate(run)).numpy() for run in self._runs]
        return np.concatenate(told).astype(np.float64)

    def predictions(self, margins: Margins) -> list[Prediction]:
        """What a server would answer with these margins."""
        p_yes = np.exp(-np.logaddexp(0, -margins))
        told = []
        for one, own in zip(self._encoded, np.split(p_yes, self._ends), strict=True):
            body = encode_response(one.request, "", own.tolist(), 0)
            prediction = read_outcome(one.example, Outcome(body, is_answer=True))
            if isinstance(prediction, Refusal):
                raise TypeError(prediction.reason)
            told.append(prediction)
        return told
