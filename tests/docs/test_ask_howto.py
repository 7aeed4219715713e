"""The how-to on questions is played from top to bottom; its answers are the ones that it shows."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from app.terminal.answers import print_reply
from models.questions import WhatIfAnswer, WhyNotAnswer
from tests.docs.player import HOWTOS, play

PAGE = "ask-the-plan.md"
SHOWN = re.compile(r"<!-- shows -->\n```text\n(.*?)```", re.DOTALL)


def _printed(answer: WhyNotAnswer | WhatIfAnswer) -> str:
    text = StringIO()
    print_reply(Console(width=400, file=text), answer)
    return text.getvalue()


def test_the_howto_says_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    play(PAGE, tmp_path, capsys)
    answer = WhyNotAnswer.model_validate_json((tmp_path / "answer.json").read_bytes())
    printed = _printed(answer)
    (shown,) = SHOWN.findall((HOWTOS / PAGE).read_text(encoding="utf-8"))
    for line in shown.splitlines():
        assert line in printed
    gains = WhatIfAnswer.model_validate_json((tmp_path / "gains.json").read_bytes())
    narrower, fewer, faster = gains.gains
    assert narrower.most is not None
    assert narrower.most <= 0.0, "half of a link gains nothing"
    assert (fewer.verdict, fewer.direction, faster.verdict) == ("loses", "less", "gains")
    assert "gains at least" in _printed(gains)
