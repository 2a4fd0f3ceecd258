"""Whether a generation's model files are still those of the start, and who waits for them.

    a worker, or what forks workers, ends since it cannot load ──are they others?──► held back
        ▲                                                                                │
        └───────────────── the files change, or RETRY_S has passed ◄─────────────────────┘

Nobody else needs the files: forks are made from memory. To load in vain each second, those that live would pay for.
"""

import time

import structlog

from ostraka.children import Child
from ostraka.generation import Generation
from ostraka_shared.errors import ModelDamaged
from ostraka_shared.model_folder import FileStates, ModelFolder, file_states

log = structlog.get_logger()

MODEL_FILES_CHANGED = "model_files_changed"
CANNOT_COME_BACK = "cannot_come_back"
EXIT_CANNOT_LOAD = "1"
RETRY_S = 30.0
"""It may be the same model in other files, which their states do not say; to see takes a core for a second or two."""


class ModelWatch:
    """Of `generation`, from the first `look` on."""

    def __init__(self, generation: Generation, model: ModelFolder) -> None:
        self._generation = generation
        self._model = model
        self._first = self._last = _states_of(model)
        self._is_said = False
        self._held: list[Child] = []

    def look(self) -> tuple[str, ...]:
        """What is wrong. The files must be those of the first look: to be put back is not to be verified."""
        found, before = _states_of(self._model), self._last
        self._last = found
        is_changed = not self._are_of_the_start(found)
        if is_changed and not self._is_said:
            self._say(is_gone=found is None)
        self._is_said = is_changed
        if found != before:
            self._release()
        self._held = [child for child in self._held if not self._is_back(child)]
        return (MODEL_FILES_CHANGED,) * is_changed + (CANNOT_COME_BACK,) * bool(self._held)

    def hold_back(self, child: Child, code: str) -> None:
        """Of a child that has ended and is to be started again: not yet, if it would only end so again."""
        if code != EXIT_CANNOT_LOAD or child.restart_at is None or not self._loads(child):
            return
        if self._are_of_the_start(_states_of(self._model)):
            return
        child.restart_at = time.monotonic() + RETRY_S
        if child not in self._held:
            self._held.append(child)
            hint = "those that live serve on; put the folder back as it was, or roll out another model"
            log.error("cannot_come_back", child=child.name, model=str(self._model.path), retry_s=RETRY_S, hint=hint)

    def _are_of_the_start(self, found: FileStates | None) -> bool:
        return found is not None and found == self._first

    def _loads(self, child: Child) -> bool:
        workers = (*self._generation.workers, *self._generation.relieved)
        forks = [worker.fork_from for worker in workers]
        return child in workers or any(child is zygote and zygote.fork in forks for zygote in self._generation.zygotes)

    def _release(self) -> None:
        for child in self._held:
            if child.restart_at is not None:
                child.restart_at = time.monotonic()

    def _is_back(self, child: Child) -> bool:
        """Where the files are others, it must have run for longer than it takes to see that it cannot load."""
        has_run = time.monotonic() - child.started > RETRY_S
        return child.is_running and (has_run or self._are_of_the_start(self._last))

    def _say(self, *, is_gone: bool) -> None:
        is_kept = any(worker.fork_from for worker in self._generation.workers)
        keeps = "workers are forked from memory" if is_kept else "a worker that dies cannot come back"
        hint = f"{keeps}; put the folder back as it was and run `ostraka rollout`"
        log.error("model_files_changed", model=str(self._model.path), is_gone=is_gone, hint=hint)


def _states_of(model: ModelFolder) -> FileStates | None:
    """Less the times of changes that are none to the content, as by chmod. None where a file is gone."""
    try:
        return tuple(state[:4] for state in file_states(model))
    except ModelDamaged:
        return None
