"""An answer reads as its text, and its representation is one line."""

from __future__ import annotations

from memagent.core.answers import Answer, Citation, Reply, Verdict


def test_an_answer_prints_as_its_text() -> None:
    answer = Answer(text="Basel\nand Bern", citations=(Citation(hit_id="mem_1"),))
    assert f"{answer}" == str(answer) == "Basel\nand Bern"
    assert repr(answer) == r"Answer('Basel\nand Bern', verdict='supported', citations=1)"


def test_a_reply_is_represented_by_its_own_name() -> None:
    reply = Reply(text="Hi.", verdict=Verdict.UNSUPPORTED, thread="t", session_id="s")
    assert str(reply) == "Hi."
    assert repr(reply) == "Reply('Hi.', verdict='unsupported', citations=0)"
