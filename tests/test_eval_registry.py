"""The table of known data sets: it agrees with itself, with the rules, and is found by any spelling."""

from __future__ import annotations

import pytest

from eval.data.columns import PAIR_FIELDS, QUESTION_FIELDS, check_columns
from eval.data.datasets import default_rule
from eval.data.registry import REGISTRY, DataSetInfo, find, get
from eval.errors import EvalError
from eval.metrics import RULES


@pytest.mark.parametrize("info", REGISTRY.values(), ids=lambda info: info.name)
def test_an_entry_is_whole_and_agrees_with_the_rules(info: DataSetInfo) -> None:
    assert info.task in ("qa", "retrieval", "sts")
    assert info.hub.count("/") == 1 and info.split and info.source
    assert (info.rule in RULES) == (info.task == "qa")
    if info.rule:
        assert default_rule(info.name) == info.rule
    check_columns(info.columns, PAIR_FIELDS if info.task == "sts" else QUESTION_FIELDS)


def test_the_sizes_are_those_that_papers_report() -> None:
    # NQ-open (Lee et al. 2019), TriviaQA open-domain (DPR), HotpotQA, 2Wiki, MuSiQue-Ans and STS-B in their own papers.
    sizes = {"nq": 3610, "triviaqa": 11313, "hotpotqa": 7405, "2wikimultihopqa": 12576, "musique": 2417, "stsb": 1379}
    assert {name: REGISTRY[name].size for name in sizes} == sizes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NQ", "nq"),
        ("HotPot-QA", "hotpotqa"),
        ("2wiki", "2wikimultihopqa"),
        ("2WikiMultiHop-QA", "2wikimultihopqa"),
        ("trec-dl19", "trec_dl19"),
        ("STS-B", "stsb"),
        ("Web_Questions", "webquestions"),
    ],
)
def test_case_hyphens_and_aliases_do_not_matter(name: str, expected: str) -> None:
    assert get(name).name == expected


def test_no_two_sets_answer_to_one_name() -> None:
    owners: dict[str, str] = {}
    for info in REGISTRY.values():
        for name in (info.name, *info.aliases):
            assert owners.setdefault(name.replace("_", ""), info.name) == info.name
            assert find(name) is info
    assert "nqopen" not in owners, "nq_open is the name of a rule of its own"


def test_an_unknown_name_offers_the_nearest_and_a_path() -> None:
    with pytest.raises(EvalError, match=r"no data set 'trivaqa': did you mean 'triviaqa'\? A path works too"):
        get("trivaqa")
    with pytest.raises(EvalError, match=r"no data set 'zzz': known are triviaqa, nq, .*\. A path works too"):
        get("zzz")
    assert find("zzz") is None
