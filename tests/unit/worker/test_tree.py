import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostraka_shared.reading_rules import LEAST_SHARED_TOKENS
from ostraka_worker.tree import build_tree, common_tokens, sort_prompts
from tests.works import ids

PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=1, max_size=12)
SIMILAR = st.tuples(st.lists(st.integers(0, 3), max_size=30), PROMPTS).map(
    lambda parts: [parts[0] + p for p in parts[1]]
)


def tree_of(prompts):
    tokens = [ids(each) for each in prompts]
    return tokens, build_tree(dict(enumerate(tokens)), sort_prompts(tokens, range(len(tokens))))


def path(nodes, node, prompts):
    before = [] if node.parent is None else path(nodes, nodes[node.parent], prompts)
    return before + prompts[node.prompt][node.first : node.stop]


@given(st.one_of(PROMPTS, SIMILAR))
def test_each_prompt_ends_at_the_node_whose_path_it_is(prompts):
    _, nodes = tree_of(prompts)
    assert sorted(index for node in nodes for index in node.answers) == list(range(len(prompts)))
    for place, node in enumerate(nodes):
        assert node.parent is None or node.parent < place
        assert node.first < node.stop
        for index in node.answers:
            assert path(nodes, node, prompts) == prompts[index]


@given(st.one_of(PROMPTS, SIMILAR))
def test_it_reads_no_token_more_than_the_prompts_have(prompts):
    _, nodes = tree_of(prompts)
    assert sum(node.stop - node.first for node in nodes) <= sum(map(len, prompts))


@given(st.one_of(PROMPTS, SIMILAR))
def test_brothers_share_little(prompts):
    tokens, nodes = tree_of(prompts)
    for one in nodes:
        for other in nodes:
            if one is not other and one.parent == other.parent:
                shared = common_tokens(tokens[one.prompt], tokens[other.prompt])
                assert shared - one.first < LEAST_SHARED_TOKENS


def test_equal_prompts_are_one_node():
    (node,) = tree_of([[1] * 9] * 3)[1]
    assert sorted(node.answers) == [0, 1, 2]


def test_a_prompt_that_another_goes_on_from_is_its_parent():
    first, second = tree_of([[1] * 20 + [2], [1] * 20])[1]
    assert (first.answers, first.stop) == ((1,), 20)
    assert (second.answers, second.parent, second.first) == ((0,), 0, 20)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_tokens(one, other):
    common = common_tokens(ids(one), ids(other))
    assert one[:common] == other[:common]
    assert common in (len(one), len(other)) or one[common] != other[common]


def test_tokens_that_share_bytes_are_not_common():
    assert common_tokens(np.array([256], "<u4").tobytes(), np.array([512], "<u4").tobytes()) == 0
