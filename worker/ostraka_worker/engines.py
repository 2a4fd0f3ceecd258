"""The one place that chooses an engine for a model folder; a worker knows the protocol alone."""

from ostraka_shared.model_folder import ModelFolder
from ostraka_worker.engine import Engine
from ostraka_worker.kernels import best_graph


def load_engine(folder: ModelFolder, threads: int) -> Engine:
    """Each is imported only where it is used: onnxruntime alone takes 0.1 s. Raises what the engine raises."""
    if folder.spec.engine == "fake":
        from ostraka_worker.fake_engine import FakeEngine  # noqa: PLC0415

        return FakeEngine(folder.spec.fake)
    from ostraka_worker.onnx_engine import OnnxEngine  # noqa: PLC0415

    return OnnxEngine(best_graph(folder.graph, folder.hashes), threads)
