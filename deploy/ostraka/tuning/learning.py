"""One step of learning, and what must be kept to go on with it later."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ostraka.tuning.batches import Batch
from ostraka.tuning.losses import BINARY_OF_CHOICE, COMPARED_OF_CHOICE
from ostraka.tuning.network import Network
from ostraka_worker.build.decoder import Tensor as Array

BETAS = (0.9, 0.98)
DECAY = 0.01
"""Of the low-rank matrices alone."""
MOST_NORM = 1.0
EXAMPLES_A_UNIT = 40
"""The loss of a batch is its sum over this, so that an example weighs the same in a full batch and in one of few."""
NOW, FIRST, SECOND = "now.", "first.", "second."


class Learner:
    def __init__(self, network: Network, learning_rate: float) -> None:
        self.network = network
        self._learning_rate = learning_rate
        parameters = network.parameters.values()
        groups = [
            {"params": [one for one in parameters if one.dim() == 2], "weight_decay": DECAY},
            {"params": [one for one in parameters if one.dim() == 1], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, fused=True)

    def step(self, batch: Batch, rate_factor: float) -> tuple[float, float]:
        """(mean loss of the examples, norm of the gradient). A gradient that is no number changes nothing."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._learning_rate * rate_factor
        losses = batch_losses(self.network.margins(batch), batch)
        (losses.sum() / EXAMPLES_A_UNIT).backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self.network.parameters.values(), MOST_NORM))
        if np.isfinite(norm):
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(losses.detach().mean()), norm

    def parameters(self) -> dict[str, Array]:
        """A copy."""
        return {name: value.detach().numpy().copy() for name, value in self.network.parameters.items()}

    def put(self, parameters: Mapping[str, Array]) -> None:
        with torch.no_grad():
            for name, value in self.network.parameters.items():
                value.copy_(torch.from_numpy(np.array(parameters[name])))

    def state(self) -> dict[str, Array]:
        """Everything that the next steps depend on, by names with a prefix each."""
        kept: dict[str, Array] = {}
        for name, value in self.network.parameters.items():
            moments = self._optimizer.state[value]
            kept[NOW + name] = value.detach().numpy()
            for prefix, key in ((FIRST, "exp_avg"), (SECOND, "exp_avg_sq")):
                kept[prefix + name] = moments[key].numpy() if key in moments else np.zeros(value.shape, np.float32)
        return kept

    def restore(self, state: Mapping[str, Array], steps: int) -> None:
        self.put({name: state[NOW + name] for name in self.network.parameters})
        for name, value in self.network.parameters.items():
            self._optimizer.state[value] = {
                "step": torch.tensor(float(steps)),
                "exp_avg": torch.tensor(state[FIRST + name]),
                "exp_avg_sq": torch.tensor(state[SECOND + name]),
            }


def batch_losses(margins: Tensor, batch: Batch) -> Tensor:
    """Of each example, as losses.py has it."""
    owners, targets = torch.from_numpy(batch.owners), torch.from_numpy(batch.targets)
    zeros = torch.zeros(batch.examples, dtype=margins.dtype)
    binary = functional.binary_cross_entropy_with_logits(margins, targets.to(margins.dtype), reduction="none")
    of_prompts = zeros.index_add(0, owners, binary) / zeros.index_add(0, owners, torch.ones_like(binary))
    log_p = functional.logsigmoid(margins)
    total = zeros.index_add(0, owners, log_p.exp())
    compared = torch.log(total + 1e-9) - zeros.index_add(0, owners, log_p * targets)
    of_choices = BINARY_OF_CHOICE * of_prompts + COMPARED_OF_CHOICE * compared
    return torch.where(torch.from_numpy(batch.is_choice), of_choices, of_prompts)
