"""States, instructions and descriptions: what they may be, and how deep."""

from typing import Any

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from tests.unit.gateway.jevos.asking import NOUL, accept, body, items, nest

JSON = "json-or-python[json=any,python=tagged-union[list[...],dict[str,...],str,bool,int,float,none]]"
DICT, LIST = f"dict[str,{JSON}]", f"list[{JSON}]"


def below_state(found: list[dict]) -> list[tuple]:
    return [(item["type"], *item["loc"][2:]) for item in found]


@pytest.mark.parametrize("value", [3, 1.5, True, None])
def test_scalars_are_refused_as_a_union_of_pydantics_would(value: Any) -> None:
    union = TypeAdapter(str | dict[str, JsonValue] | list[JsonValue])
    with pytest.raises(ValidationError) as native:
        union.validate_python(value)
    expected = [
        {"type": item["type"], "loc": ["body", "state", *item["loc"]], "msg": item["msg"], "input": value}
        for item in native.value.errors(include_url=False)
    ]
    assert items(body(state=value)) == expected
    assert below_state(expected) == [("string_type", "str"), ("dict_type", DICT), ("list_type", LIST)]


@pytest.mark.parametrize("kind", [list, dict])
def test_98_containers_around_a_scalar_pass(kind: type) -> None:
    assert accept(body(state=nest(98, kind))).state == nest(98, kind)
    deep = {"q": NOUL | {"instructions": nest(98, kind)}, "s": {"type": "score", "criteria": [nest(98, kind), "b"]}}
    assert accept(body(deep)).questions["q"].instructions == nest(98, kind)


def test_99_lists_fail() -> None:
    found = items(body(state=nest(99)))
    path = (0, "list") * 98 + (0,)
    assert below_state(found) == [("string_type", "str"), ("dict_type", DICT), ("recursion_loop", LIST, *path)]
    assert found[2]["msg"] == "Recursion error - cyclic reference detected"
    assert [item["input"] for item in found] == [nest(99), nest(99), 1]


def test_99_objects_fail() -> None:
    found = items(body(state=nest(99, dict)))
    path = ("k", "dict") * 98 + ("k",)
    assert below_state(found) == [("string_type", "str"), ("recursion_loop", DICT, *path), ("list_type", LIST)]


def test_every_value_that_is_too_deep_is_told() -> None:
    found = items(body(state=nest(98, list, [1, "a", None])))
    assert [item["loc"][-1] for item in found[2:]] == [0, 1, 2]


def test_a_container_that_is_too_deep_lowers_the_limit_for_what_follows() -> None:
    deep = nest(98, list, [[], 2])  # the empty list is at level 100, and so is 2
    found = items(body({"q": NOUL | {"instructions": nest(98)}}, state=deep))
    assert [item["input"] for item in found[2:4]] == [[], 2]
    assert [item["type"] for item in found[4:]] == ["string_type", "dict_type", "recursion_loop"]
    assert found[6]["loc"] == ["body", "questions", "q", "noul", "instructions", LIST, *(0, "list") * 97, 0]


def test_a_scalar_that_is_too_deep_lowers_nothing() -> None:
    found = items(body({"q": NOUL | {"instructions": nest(98)}}, state=nest(99)))
    assert {item["loc"][1] for item in found} == {"state"}


def test_there_is_an_end_to_the_list() -> None:
    (item,) = items(body({"q": {"type": "score", "criteria": [0] * 4000}}))
    assert (item["loc"], item["type"]) == (["body"], "value_error")
