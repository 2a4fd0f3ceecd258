"""The layers between two attentions, in float (of weights in float or in bfloat16) and in 8 bits, against the same
written out in numpy; and a row's bits in any company."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import NodeProto, helper

from ostraka_worker.build.bfloat16 import as_bf16, rounded, widened
from ostraka_worker.build.kernel_graphs import DOMAIN, WHOLE_KINDS, Variant
from ostraka_worker.build.linears import quantise
from ostraka_worker.build.panels import in_half_tiles, in_panels, in_tiles, in_turn, offsets
from ostraka_worker.kernels import LIBRARY, usable_kinds

# Widths that are no multiple of a tile's 64 among them.
HIDDEN, WIDE, HEADS, KV_HEADS, DIMS, CONTEXT = 96, 160, 3, 1, 32, 40
QUERY, KEY = HEADS * DIMS, KV_HEADS * DIMS
EPSILON = 1e-5
Arrays = dict[str, np.ndarray]


VARIANTS = [Variant(kind, weights, is_whole=True) for weights, kinds in WHOLE_KINDS.items() for kind in kinds]


def name_of(variant: Variant) -> str:
    return f"{variant.weights}-{variant.kind}"


@pytest.fixture(params=VARIANTS, ids=name_of, scope="module")
def variant(request: pytest.FixtureRequest) -> Variant:
    chosen: Variant = request.param
    if chosen.kind not in usable_kinds():
        pytest.skip("no such instructions here, or no kernels")
    return chosen


@pytest.fixture(scope="module")
def precision(variant: Variant) -> str:
    return variant.weights


def make_session(node: NodeProto, inputs: Arrays, outputs: dict[str, type], threads: int = 1) -> ort.InferenceSession:
    def info(name: str, dtype: np.dtype | type) -> object:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)

    graph = helper.make_graph(
        [node],
        "one",
        [info(name, array.dtype) for name, array in inputs.items()],
        [info(name, dtype) for name, dtype in outputs.items()],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(DOMAIN, 1)]
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(LIBRARY))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def random_rows(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


FLOATS = {
    name: random_rows(seed, *shape) / 8
    for seed, (name, shape) in enumerate(
        {
            "qkv": (QUERY + 2 * KEY, HIDDEN),
            "out": (HIDDEN, QUERY),
            "gate": (WIDE, HIDDEN),
            "up": (WIDE, HIDDEN),
            "down": (HIDDEN, WIDE),
        }.items()
    )
}
HALVES = {name: rounded(weight) for name, weight in FLOATS.items()}
EIGHT_BITS = {name: quantise(weight) for name, weight in FLOATS.items()}


def product(rows: np.ndarray, name: str, precision: str) -> np.ndarray:
    """In 8 bits: rows rounded, each with its own scale; then exact."""
    if precision != "int8":
        return rows @ (HALVES if precision == "bf16" else FLOATS)[name].T.astype(np.float64)
    weight, scale = EIGHT_BITS[name]
    largest = np.abs(rows).max(axis=1, keepdims=True)
    factor = np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0)
    whole = np.rint(rows * factor).astype(np.int64)
    return (whole @ weight.T.astype(np.int64)) * (largest / 127).astype(np.float64) * scale


def weights(variant: Variant, name: str, *parts: str) -> Arrays:
    """As the operators read them; of two parts, in turn."""
    if variant.weights != "int8":
        floats = HALVES if variant.weights == "bf16" else FLOATS
        return {name: laid(variant.weights, in_turn(*(floats[part] for part in parts)) if parts else floats[name])}
    eight_bits = [EIGHT_BITS[part] for part in parts]
    both = [in_turn(*each) for each in zip(*eight_bits, strict=True)] if parts else EIGHT_BITS[name]
    return laid_eight_bits(variant, name, *both)


def laid_eight_bits(variant: Variant, name: str, weight: np.ndarray, scale: np.ndarray) -> Arrays:
    values = {"tiles": in_tiles(weight), "scale": scale, "offset": offsets(weight)}
    return {each: values[each.removeprefix(f"{name}_")] for each in variant.weights_of(name)}


def laid(precision: str, floats: np.ndarray) -> np.ndarray:
    return in_half_tiles(as_bf16(floats)) if precision == "bf16" else in_panels(floats)


def normalised(rows: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return (rows / np.sqrt((rows.astype(np.float64) ** 2).mean(-1, keepdims=True) + EPSILON) * gain).astype(np.float32)


def heads_inputs(variant: Variant, rows: int, *, norms: bool) -> Arrays:
    angles = np.outer(np.arange(CONTEXT), 100.0 ** -np.linspace(0, 1, DIMS // 2))
    return {
        "normed": random_rows(rows, rows, HIDDEN),
        "positions": np.random.default_rng(rows).integers(0, CONTEXT, (rows, 1)),
        **weights(variant, "qkv"),
        "bias": random_rows(3, QUERY + 2 * KEY),
        "gains": random_rows(4, HEADS + KV_HEADS if norms else 0, DIMS),
        "cosines": np.cos(angles).astype(np.float32),
        "sines": np.sin(angles).astype(np.float32),
    }


def expected_heads(precision: str, given: Arrays) -> list[np.ndarray]:
    mixed = (product(given["normed"], "qkv", precision) + given["bias"]).astype(np.float32)
    turned = mixed[:, : QUERY + KEY].reshape(len(mixed), HEADS + KV_HEADS, DIMS)
    if len(given["gains"]):
        turned = normalised(turned, given["gains"])
    cosines, sines = (given[name][given["positions"]] for name in ("cosines", "sines"))
    one, other = turned[..., : DIMS // 2], turned[..., DIMS // 2 :]
    turned = np.concatenate([one * cosines - other * sines, other * cosines + one * sines], axis=-1)
    turned = turned.reshape(len(mixed), -1)
    return [turned[:, :QUERY], turned[:, QUERY:], mixed[:, QUERY + KEY :]]


def feed_inputs(variant: Variant, rows: int) -> Arrays:
    return {
        "attended": random_rows(rows, rows, QUERY),
        "before": random_rows(rows + 1, rows, HIDDEN),
        **weights(variant, "out"),
        "gain": random_rows(5, HIDDEN),
        **weights(variant, "wide", "gate", "up"),
        **weights(variant, "down"),
        "next_gain": random_rows(6, HIDDEN),
    }


def expected_feed(precision: str, given: Arrays) -> list[np.ndarray]:
    residual = (given["before"] + product(given["attended"], "out", precision)).astype(np.float32)
    normed = normalised(residual, given["gain"])
    gate = product(normed, "gate", precision)
    gated = (gate / (1 + np.exp(-gate)) * product(normed, "up", precision)).astype(np.float32)
    residual = (residual + product(gated, "down", precision)).astype(np.float32)
    return [normalised(residual, given["next_gain"]), residual]


@pytest.fixture(scope="module")
def heads(variant: Variant) -> ort.InferenceSession:
    inputs = heads_inputs(variant, 1, norms=False)
    numbers = {"heads": HEADS, "kv_heads": KV_HEADS, "epsilon": EPSILON}
    kind, kept = variant.heads_operator, np.uint16 if variant.keeps_halves else np.float32
    node = helper.make_node(kind, list(inputs), ["query", "key", "value"], domain=DOMAIN, **numbers)
    return make_session(node, inputs, {"query": np.float32, "key": kept, "value": kept})


@pytest.fixture(scope="module")
def feed(variant: Variant) -> ort.InferenceSession:
    return feed_session(variant)


def feed_session(variant: Variant, threads: int = 1) -> ort.InferenceSession:
    inputs = feed_inputs(variant, 1)
    node = helper.make_node(
        variant.feed_forward_operator, list(inputs), ["normed", "residual"], domain=DOMAIN, epsilon=EPSILON
    )
    return make_session(node, inputs, {"normed": np.float32, "residual": np.float32}, threads)


def as_floats(kept: np.ndarray) -> np.ndarray:
    return widened(kept) if kept.dtype == np.uint16 else kept


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 17, 40, 300])
def test_heads_are_mixed_normalised_and_turned(
    variant: Variant, precision: str, heads: ort.InferenceSession, rows: int, norms: bool
) -> None:
    given = heads_inputs(variant, rows, norms=norms)
    query, key, value = heads.run(None, given)
    expected = expected_heads(precision, given)
    rounding = 2**-8 if variant.keeps_halves else 1e-5
    np.testing.assert_allclose(query, expected[0], atol=1e-4, rtol=1e-4)
    for ours, wanted in ((key, expected[1]), (value, expected[2])):
        np.testing.assert_allclose(as_floats(ours), wanted, atol=rounding / 4, rtol=rounding)


def test_a_float_times_one_keeps_each_of_its_bits(
    variant: Variant, precision: str, heads: ort.InferenceSession
) -> None:
    """In 8 bits, half of a step of its row may be lost."""
    given = heads_inputs(variant, 40, norms=False)
    given["positions"][:], given["bias"][:] = 0, 0
    ones = np.eye(QUERY + 2 * KEY, HIDDEN, dtype=np.float32)
    if precision == "int8":
        weight, scale = quantise(ones)
        ours = heads.run(["query"], given | laid_eight_bits(variant, "qkv", weight, scale))[0]
        step = np.abs(given["normed"]).max(axis=1, keepdims=True) / 127
        assert (np.abs(ours - given["normed"]) < 0.501 * step).all()
    else:
        ours = heads.run(["query"], given | {"qkv": laid(precision, ones)})[0]
        assert ours.tobytes() == given["normed"].tobytes()


@pytest.mark.parametrize("variant", [each for each in VARIANTS if each.weights == "int8"], ids=name_of, indirect=True)
@pytest.mark.parametrize("rows", [1, 14, 15, 40, 300])
def test_sums_of_eight_bits_are_exact(variant: Variant, heads: ort.InferenceSession, rows: int) -> None:
    """Of whole numbers with a scale of 1, the largest of either sign among them."""
    given, random = heads_inputs(variant, rows, norms=False), np.random.default_rng(rows)
    given["positions"][:], given["bias"][:] = 0, 0
    weight = random.integers(-127, 128, EIGHT_BITS["qkv"][0].shape).astype(np.int8)
    weight[:2] = [[127], [-127]]
    given["normed"] = random.integers(-127, 128, given["normed"].shape).astype(np.float32)
    given["normed"][0], given["normed"][:, 0] = -127, 127
    ours = heads.run(["query"], given | laid_eight_bits(variant, "qkv", weight, np.ones(len(weight), np.float32)))[0]
    expected = given["normed"] @ weight[:QUERY].T.astype(np.float64)
    assert (ours == expected).all()


@pytest.mark.parametrize("rows", [1, 16, 17, 40, 300])
def test_the_feed_forward_half_agrees(variant: Variant, precision: str, feed: ort.InferenceSession, rows: int) -> None:
    """A rounding to 8 bits that falls to the other side, after sums in another order, moves a value by a hundredth."""
    given = feed_inputs(variant, rows)
    for ours, wanted in zip(feed.run(None, given), expected_feed(precision, given), strict=True):
        assert np.abs(ours - wanted).max() < (0.05 if precision == "int8" else 1e-5) * np.abs(wanted).max()
        assert np.median(np.abs(ours - wanted)) < 1e-5


def test_a_row_has_the_same_bits_in_any_company(
    variant: Variant, heads: ort.InferenceSession, feed: ort.InferenceSession
) -> None:
    for session, given, by_row in (
        (heads, heads_inputs(variant, 300, norms=True), ("normed", "positions")),
        (feed, feed_inputs(variant, 300), ("attended", "before")),
    ):
        together = session.run(None, given)
        for first, count in ((0, 1), (5, 15), (100, 16), (37, 20), (7, 33), (250, 50), (20, 257), (9, 14), (60, 29)):
            alone = session.run(None, given | {name: given[name][first : first + count] for name in by_row})
            for ours, expected in zip(alone, together, strict=True):
                assert ours.tobytes() == expected[first : first + count].tobytes()


def test_it_is_the_same_bits_on_several_threads(variant: Variant, feed: ort.InferenceSession) -> None:
    given = feed_inputs(variant, 50)
    several = feed_session(variant, threads=3)
    for _ in range(20):
        for ours, expected in zip(several.run(None, given), feed.run(None, given), strict=True):
            assert ours.tobytes() == expected.tobytes()


def test_rows_of_zeros_and_of_tiny_numbers_stay_numbers(variant: Variant, feed: ort.InferenceSession) -> None:
    given = feed_inputs(variant, 3)
    given["attended"][0], given["attended"][1] = 0, 1e-42
    given["before"][:2] = 0
    for ours in feed.run(None, given):
        assert np.isfinite(ours).all()
        assert not ours[0].any()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_does_not_become_one(
    variant: Variant, heads: ort.InferenceSession, feed: ort.InferenceSession, value: float
) -> None:
    """One value of many is enough, wherever it is."""
    for session, given, name in (
        (heads, heads_inputs(variant, 2, norms=False), "normed"),
        (feed, feed_inputs(variant, 2), "attended"),
        (feed, feed_inputs(variant, 2), "before"),
    ):
        given[name][0, 3] = value
        for each in map(as_floats, session.run(None, given)):
            assert not np.isfinite(each[0]).all()
            assert np.isfinite(each[1]).all()


@pytest.mark.parametrize("position", [-1, CONTEXT])
def test_a_position_outside_of_the_context_is_refused(
    variant: Variant, heads: ort.InferenceSession, position: int
) -> None:
    given = heads_inputs(variant, 4, norms=False)
    given["positions"][2] = position
    with pytest.raises(Exception, match="a position is outside of the context"):
        heads.run(None, given)


def test_heads_whose_shapes_do_not_fit_are_refused(variant: Variant, heads: ort.InferenceSession) -> None:
    given = heads_inputs(variant, 4, norms=False)
    for name in given.keys() - {"gains"}:
        with pytest.raises(Exception, match="shapes do not fit"):
            heads.run(None, given | {name: given[name][:-1]})


def test_a_feed_forward_half_whose_shapes_do_not_fit_is_refused(variant: Variant, feed: ort.InferenceSession) -> None:
    given = feed_inputs(variant, 4)
    for name in given:
        with pytest.raises(Exception, match="shapes do not fit"):
            feed.run(None, given | {name: given[name][:-1]})


def test_three_axes_are_refused(variant: Variant, feed: ort.InferenceSession) -> None:
    given = feed_inputs(variant, 4)
    with pytest.raises(Exception, match="one axis or two"):
        feed.run(None, given | {"attended": given["attended"][None]})
