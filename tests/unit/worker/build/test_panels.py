"""The order in which the kernels read weights, place by place."""

import numpy as np

from ostraka_worker.build.panels import in_half_tiles, in_panels, in_tiles, in_turn


def test_each_weight_lies_where_its_tile_wants_it() -> None:
    weight = np.random.default_rng(1).integers(-127, 128, (64, 100)).astype(np.int8)
    tiles = in_tiles(weight)
    assert tiles.shape == (2, 2 * 2048)
    parts = tiles.reshape(2, 2, 2, 16, 16, 4)  # panel, step, tile, group of inputs, output, input
    for out, inner in ((0, 0), (15, 3), (16, 4), (31, 63), (32, 64), (50, 99), (63, 70)):
        place = (out // 32, inner // 64, out % 32 // 16, inner % 64 // 4, out % 16, inner % 4)
        assert parts[place] == weight[out, inner]
    assert not parts[:, 1, :, (100 - 64) // 4 :].any()


def test_a_panel_has_its_outputs_side_by_side() -> None:
    weight = np.arange(64 * 3, dtype=np.float32).reshape(64, 3)
    panels = in_panels(weight)
    assert panels.shape == (2, 3 * 32)
    np.testing.assert_array_equal(panels.reshape(2, 3, 32)[1, 2], weight[32:, 2])


def test_a_gate_and_what_it_lets_through_take_turns() -> None:
    both = in_turn(np.arange(32), np.arange(100, 132))
    assert both.tolist() == [*range(16), *range(100, 116), *range(16, 32), *range(116, 132)]
    assert in_turn(np.ones((16, 3)), np.zeros((16, 3))).shape == (32, 3)


def test_of_two_inputs_each_in_half_tiles() -> None:
    """Output 37, input 45 of 64: the second panel's first tile of its second step, pair 6, output 5, its second half."""
    weight = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    tiles = in_half_tiles(weight)
    assert tiles.shape == (2, 64 * 32)
    assert tiles.reshape(2, 2, 2, 16, 16, 2)[1, 1, 0, 6, 5, 1] == weight[37, 45]
