import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostraka_gateway import json_values
from ostraka_gateway.json_values import VALUES_MAX, check_values
from ostraka_shared.errors import InvalidRequest

TEXTS = st.text(st.sampled_from('ab",\\[{é\n'), max_size=12)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20
)


def count(value):
    """Containers, and the commas between what they hold."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(0, len(value) - 1) + sum(map(count, inner))
    return 0


@given(value=VALUES, block_bytes=st.integers(1, 40))
def test_values_are_counted_outside_strings_alone_wherever_a_block_ends(value, block_bytes):
    body, most = json.dumps(value).encode(), count(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "BLOCK_BYTES", block_bytes)
        patch.setattr(json_values, "VALUES_MAX", most)
        check_values(body)
        patch.setattr(json_values, "VALUES_MAX", most - 1)
        if most and len(body) >= most:
            with pytest.raises(InvalidRequest, match="JSON values"):
                check_values(body)


@pytest.mark.parametrize("value", [b"1,", b"{},", b'["",'])
def test_more_than_that_many_are_refused(value):
    with pytest.raises(InvalidRequest):
        check_values(b"[" + value * VALUES_MAX)


def test_a_long_text_is_one_value():
    check_values(json.dumps({"state": '1,2,"3",[],{}' * VALUES_MAX}).encode())
