"""A Hugging Face `config.json` as an architecture, for the families whose layers are known here.

Every field is used, known not to matter, or refused; sizes that are absent are not assumed. The families are in
`huggingface_families.py`; what fields mean is in `huggingface_sizes.py` and, beside sizes, `huggingface_definition.py`;
those without a meaning here are in `huggingface_fields.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from app.faults import Refused
from app.importers.huggingface_config import Config, shown
from app.importers.huggingface_definition import definition_of
from app.importers.huggingface_families import FAMILIES
from app.importers.huggingface_windows import windows_note, windows_of
from app.importers.source import MAX_SHOWN, Document, names_shown, validated
from app.importers.texts import parse_json
from models.pointers import pointer_to
from models.workload import Architecture

_FIELDS = yaml.safe_load((files("app.importers") / "huggingface_fields.yaml").read_text(encoding="utf-8"))
# What the layers of a family are that no architecture describes, and why a field is left out that is worth a note.
NOT_DESCRIBED: Mapping[str, str] = {one: what for what, names in _FIELDS["not_described"].items() for one in names}
NOTED: Mapping[str, str] = {one: why for why, names in _FIELDS["noted"].items() for one in names}
WITHOUT_EFFECT = frozenset(_FIELDS["without_effect"])


@dataclass(frozen=True)
class ImportedModel:
    """The architecture, and which fields of the configuration it was made from."""

    architecture: Architecture
    used: tuple[str, ...]
    ignored: tuple[str, ...]
    notes: tuple[str, ...]


def huggingface(name: str, data: bytes, *, model_name: str = "", ignore: Iterable[str] = ()) -> ImportedModel:
    """The architecture that a `config.json` describes; fields named in `ignore` are let pass unread."""
    document = parse_json(name, data)
    fields = document.value
    if not isinstance(fields, dict):
        raise document.refused("", "is no JSON object", allowed="a config.json", remedy="Give the file of the model.")
    model_type = _model_type(document, fields)
    config = Config(document, model_type, fields)
    values = FAMILIES[model_type].architecture(config)
    windows = windows_of(config, values["num_layers"])
    values["definition"] = definition_of(config, values, windows)
    values["name"] = model_name or _own_name(fields, model_type)
    values["source"] = f"config.json of {values['name']} ({model_type})"
    unread = [one for one in fields if one not in config.used]
    known = {*WITHOUT_EFFECT, *NOTED, *ignore}
    unknown = [one for one in unread if one not in known and fields[one] is not None]
    if unknown:
        _refuse_unknown(document, unknown)
    architecture = validated(Architecture, values, lambda _: f"{name} as an architecture")
    notes = [*config.notes, *([windows_note(windows, architecture.num_layers)] if windows else ())]
    notes += [f"{one}: {NOTED[one]}" for one in fields if one in NOTED and fields[one] not in (None, False)]
    return ImportedModel(architecture, tuple(config.used), tuple(unread), (*notes, *_definition_notes(config, values)))


def _definition_notes(config: Config, values: Mapping[str, Any]) -> Iterator[str]:
    """What was taken for fields that are absent, and what of the model is stated in words alone."""
    if config.assumed:
        taken = ", ".join(f"{name} {_shown_default(value)}" for name, value in config.assumed.items())
        yield f"absent, taken as transformers does for {config.model_type}: {taken}"
    yield from (f"stated in words, for a trainer to be told: {part}" for part in values["definition"]["other_parts"])


def _shown_default(value: float | str) -> str:
    """A default as a note tells it.

    >>> _shown_default(1e6), _shown_default(1e-5), _shown_default("silu")
    ('1,000,000', '1e-05', 'silu')
    """
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value >= 1 and value % 1 == 0 else f"{value:g}"


def _model_type(document: Document, fields: Mapping[str, Any]) -> str:
    model_type = fields.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        return model_type
    remedy = "Describe the model as an Architecture document instead."
    if isinstance(fields.get("text_config"), dict):
        remedy = "Save the object under text_config as a file of its own, if its model_type is one of these."
    is_there = "model_type" in fields
    if isinstance(model_type, str) and model_type in NOT_DESCRIBED:
        raise document.refused("/model_type", f"{model_type} has {NOT_DESCRIBED[model_type]}, which an architecture "
                               "cannot describe", code="not-an-option", allowed=", ".join(FAMILIES),
                               remedy="Measure its layers and give them as layer_profiles of a workload with an "
                               "Architecture of the same sizes.")  # fmt: skip
    what = f"the model_type {shown(model_type)} is not known" if is_there else "the field model_type is missing"
    raise document.refused("/model_type", what, code="not-an-option",
                           allowed=", ".join(FAMILIES), remedy=remedy)  # fmt: skip


def _refuse_unknown(document: Document, unknown: list[str]) -> None:
    faults = [
        document.refused(
            pointer_to((one,)),
            f"the field {one[:80]!r} is not known: it may change the model",
            code="unknown-field",
            allowed="fields that are used or known not to matter",
            remedy=f"If it changes neither sizes nor work, let it pass: ignore it (--ignore {one[:80]}).",
        ).faults[0]
        for one in unknown[:MAX_SHOWN]
    ]
    raise Refused(faults)


def _own_name(fields: Mapping[str, Any], model_type: str) -> str:
    stated = fields.get("_name_or_path")
    if isinstance(stated, str) and stated.strip("/. "):
        return stated.rstrip("/").rsplit("/", 1)[-1][:100]
    return model_type


def summary(model: ImportedModel) -> list[str]:
    """What was used and what was not, for a person."""
    lines = [f"used: {', '.join(model.used)}"]
    if model.ignored:
        lines.append(f"not used: {names_shown(model.ignored, 60)}")
    return [*lines, *model.notes]
