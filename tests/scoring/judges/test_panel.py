"""Several judges, one verdict: or none, with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from assay.core.errors import AssayError, TaskError, UnknownName
from assay.core.ports import Services
from assay.core.records.programs import Execution, Program
from assay.core.records.requests import Generate, Request
from assay.core.records.responses import Failure, Outcome, Response
from assay.core.records.specs import MetricSpec
from assay.core.records.verdicts import Score, Unscored
from assay.scoring.judges.panel import JudgePanel, PanelDecision, PanelMember
from assay.scoring.judges.records import JudgeInput
from assay.scoring.judges.spec import parse_judge

CASE = JudgeInput(question="q", response="r", reference="t")


class ScriptedServices(Services):
    """Judges that say what they are told to: a text, a failure, or one of several by repeat."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self.replies = replies
        self.asked: list[tuple[str, Request]] = []

    async def ask(self, model: str, request: Request) -> Outcome:
        self.asked.append((model, request))
        reply = self.replies[model]
        reply = reply[request.repeat] if isinstance(reply, list) else reply
        if isinstance(reply, Failure):
            return reply
        return Response(request_id=request.id, value=reply, finish="length" if reply == "cut" else "stop")

    async def execute(self, program: Program) -> Execution:
        raise AssertionError


def jury(seats: str = "ab", **keys: Any) -> JudgePanel:
    entry = MetricSpec(
        metric="good", arguments={"judge": {"kind": "binary", **keys}}, where="t.yaml:9, metric_list[0]"
    )
    return JudgePanel(parse_judge(entry, entry.where)).with_members(
        [PanelMember(name, True) for name in seats]
    )


def decide(judges: JudgePanel, services: ScriptedServices) -> PanelDecision:
    heard = asyncio.run(judges.collect_replies(CASE, services, task="t", document=3))
    return judges.decide(heard, document=3, pipeline="none")


def numbers(decision: PanelDecision) -> dict[str, float]:
    return {verdict.metric: verdict.value for verdict in decision.verdicts if isinstance(verdict, Score)}


YES, NO = "VERDICT: CORRECT", "VERDICT: INCORRECT"
DOWN = Failure(request_id="", kind="server error", message="503")


def test_one_judge_gives_one_number_and_says_so() -> None:
    decision = decide(jury("a"), ScriptedServices({"a": YES}))
    assert decision.verdicts == (
        Score(document=3, metric="good", pipeline="none", value=1.0, why="a: correct"),
    )


def test_a_majority_decides_and_the_agreement_is_reported() -> None:
    decision = decide(jury("abc"), ScriptedServices({"a": YES, "b": YES, "c": NO}))
    assert numbers(decision) == {"good": 1.0, "good_agreement": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("seats", "quorum", "score"),
    [
        ("a", None, {}),
        ("ab", None, {"good_agreement": 1.0}),
        ("abc", 2, {"good": 1.0, "good_agreement": 1.0}),
    ],
)
def test_pairs_without_a_decision_count_as_inconsistent(
    seats: str, quorum: int | None, score: dict[str, float]
) -> None:
    """The judge `a` prefers the first answer in both orders, the others prefer the same answer."""
    keys = {} if quorum is None else {"quorum": quorum}
    judges = jury(seats, kind="comparative", disagreement="unscored", **keys)

    class Comparing(ScriptedServices):
        async def ask(self, model: str, request: Request) -> Outcome:
            self.replies = {"a": "BETTER: A", "b": f"BETTER: {'AB'[request.index]}"}
            self.replies["c"] = self.replies["b"]
            return await super().ask(model, request)

    decision = decide(judges, Comparing({}))
    consistent = (len(seats) - 1) / len(seats)
    score = {name: value for name, value in score.items() if name == "good" or len(seats) > 2}
    assert numbers(decision) == {"good_consistent": pytest.approx(consistent), **score}
    if "good" not in score:
        (unscored,) = [verdict for verdict in decision.verdicts if isinstance(verdict, Unscored)]
        assert unscored.metric == "good"
        assert unscored.why == "a: the verdicts of the two orders differ: win, then loss"


def test_a_mean_may_be_asked_for() -> None:
    decision = decide(jury("abc", combine="mean"), ScriptedServices({"a": YES, "b": YES, "c": NO}))
    assert numbers(decision)["good"] == pytest.approx(2 / 3)


def test_a_split_panel_gives_no_score_but_its_agreement() -> None:
    decision = decide(jury(), ScriptedServices({"a": YES, "b": NO}))
    assert numbers(decision) == {"good_agreement": 0.0} and not decision.failed
    assert {verdict.why for verdict in decision.verdicts if isinstance(verdict, Unscored)} == {
        "the judges are split: 1 correct, 1 incorrect"
    }


def test_an_invalid_verdict_is_unscored_with_the_reason_and_never_zero() -> None:
    decision = decide(jury("a"), ScriptedServices({"a": "I think 1"}))
    (verdict,) = decision.verdicts
    assert isinstance(verdict, Unscored) and verdict.why.startswith("invalid verdict of judge a: ")
    assert not decision.failed


def test_a_reply_that_was_cut_off_says_so() -> None:
    (verdict,) = decide(jury("a"), ScriptedServices({"a": "cut"})).verdicts
    assert isinstance(verdict, Unscored) and "reached its length limit" in verdict.why


def test_a_judge_that_fails_is_not_an_invalid_verdict() -> None:
    decision = decide(jury(), ScriptedServices({"a": YES, "b": DOWN}))
    assert decision.failed == "judge failed: b: server error: 503"
    assert all(isinstance(verdict, Unscored) for verdict in decision.verdicts)


def test_a_quorum_lets_the_others_decide() -> None:
    services = ScriptedServices({"a": YES, "b": DOWN, "c": "who knows", "d": YES})
    assert numbers(decide(jury("abcd", quorum=2), services)) == {"good": 1.0, "good_agreement": 1.0}
    assert decide(jury("abcd", quorum=3), services).failed


def test_repeats_are_requests_of_their_own() -> None:
    services = ScriptedServices({"a": [YES, NO, YES]})
    judges = jury("a", repeats=3, settings={"temperature": 0.7})
    assert numbers(decide(judges, services))["good"] == 1.0
    requests = [request for _, request in services.asked]
    assert len({request.id for request in requests}) == 3
    assert all(isinstance(one, Generate) and one.settings.temperature == 0.7 for one in requests)


def test_a_system_text_is_a_message_where_there_are_messages() -> None:
    services = ScriptedServices({"a": YES, "b": YES})
    seats = jury(system="Be strict.").with_members([PanelMember("a", True), PanelMember("b", False)])
    decide(seats, services)
    prompts = {name: request.prompt for name, request in services.asked}
    assert [message.role for message in prompts["a"].messages] == ["system", "user"]
    assert prompts["a"].chat and not prompts["b"].chat
    assert prompts["b"].text.startswith("Be strict.\n\n")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "binry"}, "no judge is called `binry`"),
        ({"promt": "x"}, "has no key `promt`"),
        ({"criteria": "x"}, "has no key `criteria`"),
        ({"kind": "comparative", "swap": "yes"}, "`swap` must be true or false"),
        ({"prompt": 3}, "`prompt` must be a text"),
        ({"kind": "comparative", "disagreement": "loss"}, "`disagreement` must be `tie` or `unscored`"),
        ({"against": "other"}, "only a comparative judge"),
        ({"quorum": 0}, "`quorum` must be a whole number above 0"),
        ({"combine": "median"}, "`combine` must be `mean` or `majority`"),
        ({"settings": "hot"}, "`settings` must be a mapping"),
        ({"model": [{"name": "x"}]}, "a judge needs the name of a model"),
        ({"model": {"model": "x", "model_args": "y"}}, "`model_args` must be a mapping"),
        ({"question": "{{a"}, "invalid template"),
        ({"media": 1}, "`media` must be true or false"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_entry_is_an_error_with_its_place(keys: dict[str, Any], message: str) -> None:
    with pytest.raises((TaskError, UnknownName), match=message) as caught:
        jury("a", **keys)
    assert caught.value.where.startswith("t.yaml:9, metric_list[0].judge")


@pytest.mark.parametrize("given", ["binary", {}, {"kind": 3}, None])
def test_a_judge_says_its_kind(given: object) -> None:
    with pytest.raises(AssayError, match="`judge` needs a `kind`"):
        parse_judge(MetricSpec(metric="m", arguments={"judge": given}), "t.yaml")


def test_a_key_beside_judge_is_refused() -> None:
    entry = MetricSpec(metric="m", arguments={"judge": {"kind": "binary"}, "model": "x"})
    with pytest.raises(TaskError, match="a judged metric has no key `model`"):
        parse_judge(entry, "t.yaml")
