"""The one base class of the vocabulary, and the annotated scalars that carry units into the schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any
from unicodedata import is_normalized

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError


def _whole(value: Any) -> Any:
    """What may become a whole number: 4 and 4.0, as JSON Schema has it, never "4" or true."""
    if isinstance(value, bool | str | bytes):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def _make_scalars_strict(node: Any) -> None:
    """Let no scalar of a core schema be made from another type; in place."""
    if isinstance(node, list | tuple):
        for one in node:
            _make_scalars_strict(one)
    if not isinstance(node, dict) or node.get("function", {}) == _WHOLE:
        return
    kind = node.get("type")
    if kind in ("bool", "float"):
        node["strict"] = True
    elif kind == "int":
        inner = dict(node)
        node.clear()
        node.update({"type": "function-before", "function": _WHOLE, "schema": inner})
        return
    for key, value in node.items():
        if key not in ("metadata", "serialization", "cls", "config"):
            _make_scalars_strict(value)


_WHOLE = {"type": "no-info", "function": _whole}


class Frozen(BaseModel):
    """An immutable value. Unknown fields, NaN and infinity are refused, and so is text or true in place of a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Scalars of the schema made strict; the containers stay as they are, so that a JSON list fills a tuple."""
        schema = handler(source)
        _make_scalars_strict(schema)
        return schema


def check_unique(names: Iterable[str], fault: str) -> None:
    """Raise ValueError for the first name that occurs twice; `fault` has `{!r}` in its place."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise ValueError(fault.format(name))
        seen.add(name)


def _unit(symbol: str) -> dict[str, str]:
    return {"unit": symbol}


def _in_si(value: float) -> float:
    """Refuse a value that can only be in giga or tera units by mistake."""
    if value < SMALLEST_SI:
        raise ValueError(
            f"{value:g} is far too small for the SI unit: write 400 Gb/s as 5e10 (B/s), 80 GB as 8e10 (B) and "
            "989 TFLOP/s as 9.89e14 (FLOP/s)"
        )
    return value


def _composed(name: str) -> str:
    """Refuse a name that looks like another one and is a different text."""
    if not is_normalized("NFC", name):
        raise ValueError(
            f"{name!a} is not in Unicode normal form C: write every letter with its accents as one character"
        )
    return name


SMALLEST_SI = 1e6  # no GPU, card or link that trains large models has less, in bytes, B/s or FLOP/s

# Neither control characters (C0, DEL, C1) nor what breaks a line or turns the direction of reading.
PLAIN_TEXT = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
Name = Annotated[str, Field(min_length=1, max_length=120, pattern=PLAIN_TEXT), AfterValidator(_composed)]
# Of an answer: two names with what joins them, or a name behind a few words.
JoinedName = Annotated[str, Field(min_length=1, max_length=250, pattern=PLAIN_TEXT), AfterValidator(_composed)]
MOST_SECONDS = 1e7  # 116 days: an iteration that long is one of a wrong unit
Seconds = Annotated[float, Field(ge=0, le=MOST_SECONDS, json_schema_extra=_unit("s"))]
TimeLimit = Annotated[float, Field(gt=0, le=86_400, json_schema_extra=_unit("s"))]
# Of an answer: a sum of limited times, or a bound.
TotalSeconds = Annotated[float, Field(ge=0, json_schema_extra=_unit("s"))]
SignedSeconds = Annotated[float, Field(json_schema_extra=_unit("s"))]
PositiveSeconds = Annotated[float, Field(gt=0, le=MOST_SECONDS, json_schema_extra=_unit("s"))]
Bytes = Annotated[float, Field(ge=0, le=1e18, json_schema_extra=_unit("B"))]
TotalBytes = Annotated[float, Field(ge=0, json_schema_extra=_unit("B"))]  # of an answer: a sum of limited sizes
MOST_BYTES_PER_S, MOST_CAPACITY_BYTES, MOST_FLOPS_PER_S = 1e18, 1e14, 1e20
Rate = Annotated[float, Field(ge=0, le=MOST_BYTES_PER_S, json_schema_extra=_unit("B/s"))]
BytesPerSecond = Annotated[
    float, Field(gt=0, le=MOST_BYTES_PER_S, json_schema_extra=_unit("B/s")), AfterValidator(_in_si)
]
CapacityBytes = Annotated[
    float, Field(gt=0, le=MOST_CAPACITY_BYTES, json_schema_extra=_unit("B")), AfterValidator(_in_si)
]
FlopsPerSecond = Annotated[
    float, Field(gt=0, le=MOST_FLOPS_PER_S, json_schema_extra=_unit("FLOP/s")), AfterValidator(_in_si)
]
Kilometres = Annotated[float, Field(ge=0, le=50_000, json_schema_extra=_unit("km"))]
Fraction = Annotated[float, Field(ge=0, le=1, json_schema_extra=_unit("1"))]
PositiveFraction = Annotated[float, Field(gt=0, le=1, json_schema_extra=_unit("1"))]
LossProbability = Annotated[float, Field(ge=0, le=0.5, json_schema_extra=_unit("1"))]
Ratio = Annotated[float, Field(ge=0, json_schema_extra=_unit("1"))]
Relative = Annotated[float, Field(json_schema_extra=_unit("1"))]
OfObjective = Annotated[float, Field(json_schema_extra=_unit("unit of the objective"))]
Watts = Annotated[float, Field(gt=0, le=1e5, json_schema_extra=_unit("W"))]
Usd = Annotated[float, Field(ge=0, le=1e12, json_schema_extra=_unit("USD"))]
MOST = 1_000_000_000  # of anything that is counted one by one; far more overflows the arithmetic
PositiveCount = Annotated[int, Field(ge=1, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
