"""Known data sets by name: where each is on the hub, what its columns are called, how many rows it has, how it is scored.

The facts were read off the data sets' own cards; `DataSetInfo.source` says which. What no card or paper could confirm is
None. No file hashes are known here: a hub set's content is remembered when it is first loaded (`eval.data.hub`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from eval.errors import UsageError

Task = Literal["qa", "retrieval", "sts"]

_FLASHRAG = "RUC-NLPIR/FlashRAG_datasets"
_CARD = f"card of {_FLASHRAG}"


@dataclass(frozen=True, slots=True)
class DataSetInfo:
    """What is known of one data set.

    Attributes:
        name: Lower case; what tables and folders call it.
        task: "qa": questions with answers. "retrieval": queries with judged documents. "sts": scored sentence pairs.
        hub: Name on the Hugging Face hub.
        subset: The hub's configuration of it; "" for its only one. Retrieval sets have three that go by the same names
            everywhere (corpus, queries, default).
        split: The one that papers evaluate on.
        columns: Our names of fields to the set's, where they differ from {id, question, golden_answers}.
        size: Rows of the split; for a retrieval set its judged queries.
        rule: Default EM rule; None where there are no answers.
        lang: Language code.
        licence: As its authors or its card state it; None where none could be confirmed.
        source: Where these facts are from.
        sha256: Of the content (`eval.data.datasets.content_hash`); None where nobody vouched for one.
        aliases: Other names that are understood.
    """

    name: str
    task: Task
    hub: str
    subset: str
    split: str
    size: int | None
    rule: str | None
    licence: str | None
    source: str
    columns: Mapping[str, str] = field(default_factory=dict)
    lang: str = "en"
    sha256: str | None = None
    aliases: tuple[str, ...] = ()


_PAIR_COLUMNS = {"text1": "sentence1", "text2": "sentence2", "score": "score"}

REGISTRY: dict[str, DataSetInfo] = {
    info.name: info
    for info in (
        # The raw aliases: with them goes the rule `squad`, never `triviaqa`, whose golds are the normalised aliases.
        DataSetInfo("triviaqa", "qa", _FLASHRAG, "triviaqa", "test", 11_313, "squad", None, _CARD),
        DataSetInfo("nq", "qa", _FLASHRAG, "nq", "test", 3_610, "squad", "CC BY-SA 3.0", _CARD),
        DataSetInfo(
            "hotpotqa",
            "qa",
            _FLASHRAG,
            "hotpotqa",
            "dev",
            7_405,
            "hotpotqa",
            "CC BY-SA 4.0",
            _CARD,
            aliases=("hotpot", "hotpot_qa"),
        ),
        DataSetInfo(
            "2wikimultihopqa",
            "qa",
            _FLASHRAG,
            "2wikimultihopqa",
            "dev",
            12_576,
            "2wikimultihopqa",
            "Apache-2.0",
            _CARD,
            aliases=("2wiki", "2wikimqa"),
        ),
        # Not FlashRAG's copy: this one is the authors' file, whose aliases are golds too.
        DataSetInfo(
            "musique",
            "qa",
            "dgslibisey/MuSiQue",
            "",
            "validation",
            2_417,
            "musique",
            "CC BY 4.0",
            f"files of dgslibisey/MuSiQue (musique_ans_v1.0_dev.jsonl); size: {_CARD}",
            columns={"answers": "answer", "aliases": "answer_aliases"},
        ),
        DataSetInfo("popqa", "qa", _FLASHRAG, "popqa", "test", 14_267, "squad", None, _CARD),
        DataSetInfo(
            "webquestions",
            "qa",
            _FLASHRAG,
            "web_questions",
            "test",
            2_032,
            "squad",
            None,
            _CARD,
            aliases=("web_questions", "webq"),
        ),
        DataSetInfo("squad", "qa", _FLASHRAG, "squad", "dev", 10_570, "squad", "CC BY-SA 4.0", _CARD),
        DataSetInfo("bamboogle", "qa", _FLASHRAG, "bamboogle", "test", 125, "squad", None, _CARD),
        # FlashRAG's own evaluator takes these golds for patterns, as this rule does. Its card gives no size.
        DataSetInfo(
            "curatedtrec",
            "qa",
            _FLASHRAG,
            "curatedtrec",
            "test",
            694,
            "curatedtrec",
            None,
            f"configurations: {_CARD}; size: DPR (Karpukhin et al. 2020), table 1",
            aliases=("curated_trec",),
        ),
        DataSetInfo(
            "scifact",
            "retrieval",
            "mteb/scifact",
            "",
            "test",
            300,
            None,
            "CC BY 4.0, corpus ODC-By",
            "card of mteb/scifact; size: BEIR (Thakur et al. 2021), table 1",
        ),
        DataSetInfo(
            "trec_dl19",
            "retrieval",
            "mteb/msmarco",
            "",
            "test",
            43,
            None,
            "MS MARCO terms: research use",
            "cards of mteb/msmarco (9,260 judgments) and irds/beir_msmarco_test (43 queries, TREC DL 2019)",
            aliases=("trecdl19", "dl19"),
        ),
        DataSetInfo(
            "stsb",
            "sts",
            "mteb/stsbenchmark-sts",
            "",
            "test",
            1_379,
            None,
            "CC BY-SA 4.0",
            "MTEB; size: STS benchmark (Cer et al. 2017)",
            columns=_PAIR_COLUMNS,
            aliases=("sts_b", "stsbenchmark"),
        ),
        # MTEB's test split; its size is on no card that could be read.
        DataSetInfo(
            "sick",
            "sts",
            "mteb/sickr-sts",
            "",
            "test",
            None,
            None,
            "CC BY-NC-SA 3.0",
            "card of mteb/sickr-sts",
            columns=_PAIR_COLUMNS,
            aliases=("sick_r", "sickr"),
        ),
    )
}
_BY_ALIAS = {alias: info for info in REGISTRY.values() for alias in (info.name, *info.aliases)}


def find(name: str) -> DataSetInfo | None:
    """The data set of that name or alias, without regard to case, hyphens and underscores; None where there is none."""
    plain = _plain(name)
    return next((info for alias, info in _BY_ALIAS.items() if _plain(alias) == plain), None)


def get(name: str) -> DataSetInfo:
    """The same, for a name that must be known.

    Raises:
        UsageError: It is not; the message offers the nearest and says that a path works too.
    """
    info = find(name)
    if info is not None:
        return info
    near = difflib.get_close_matches(name.lower(), _BY_ALIAS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(REGISTRY)}."
    raise UsageError(f"there is no data set {name!r}: {hint} A path works too, as in NAME=questions.jsonl")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
