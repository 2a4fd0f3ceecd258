from pathlib import Path

import pytest

from tests.fake_model import make_fake_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_fake_model(tmp_path_factory.mktemp("edge") / "model").path
