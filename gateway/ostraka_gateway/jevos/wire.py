"""The request's form: its fields, strictly, and every error at once in pydantic's own words."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ostraka_gateway.jevos.items import ITEMS_MAX, Item, Refusal, too_many_items
from ostraka_gateway.jevos.structured import Allowance, Structured

OPTIONS_MIN, OPTIONS_MAX = 2, 26
LEVELS_MIN, LEVELS_MAX = 2, 10


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NoulCriteria(_Strict):
    true: Structured | None = None
    false: Structured | None = None


class Noul(_Strict):
    type: Literal["noul"]
    instructions: Structured | None = None
    criteria: NoulCriteria | None = None


class Choice(_Strict):
    type: Literal["choice"]
    instructions: Structured | None = None
    criteria: dict[str, Structured | None]

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        count = len(self.criteria)
        if not all(name.strip() for name in self.criteria):
            raise ValueError("an option's name needs a character that is not a space")
        if count < OPTIONS_MIN:
            raise ValueError(f"a choice is between at least {OPTIONS_MIN} options; this one has {count}")
        if count > OPTIONS_MAX:
            raise ValueError(
                f"a choice has at most {OPTIONS_MAX} options and this one has {count}: "
                "ask in rounds, over groups of options and then over the winners"
            )
        return self


class Score(_Strict):
    type: Literal["score"]
    instructions: Structured | None = None
    criteria: list[Structured]

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        count = len(self.criteria)
        if not LEVELS_MIN <= count <= LEVELS_MAX:
            raise ValueError(f"a score has {LEVELS_MIN} to {LEVELS_MAX} levels; this one has {count}")
        return self


Question = Noul | Choice | Score


class Request(_Strict):
    """The fields' order is the order of their errors."""

    state: Structured
    model: str = Field(min_length=1)
    questions: dict[str, Annotated[Question, Field(discriminator="type")]] = Field(min_length=1)


def parse_request(value: Any) -> Request:
    """Raises ValidationError, or Refusal where there is no body or too much is wrong with it."""
    if value is None:
        raise Refusal([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    # `from_attributes` changes no value: it has what is no object called so in the words FastAPI's clients know.
    return Request.model_validate(value, from_attributes=True, context=Allowance())


def wire_items(error: ValidationError) -> list[Item]:
    if error.error_count() > ITEMS_MAX:
        return too_many_items().items
    return [_wire_item(dict(item)) for item in error.errors(include_url=False)]


def _wire_item(item: Item) -> Item:
    item["loc"] = ["body", *item["loc"]]
    if "error" in item.get("ctx", {}):  # an exception, of which FastAPI writes the attributes: none
        item["ctx"] = {"error": {}}
    return item
