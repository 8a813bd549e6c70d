"""What the paper claims, which figures of an experiment decide it, and by what rule.

The figures of the paper are those of arXiv 2602.09229v1, at the place that stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from rag_app.reproduction.measures import (
    NEEDS_GPU,
    NO_VERDICT,
    NOT_RUN,
    UNDECIDED,
    Measure,
    Rule,
    above,
    at_most,
    below,
    near,
    together,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim.

    Attributes:
        says: What is claimed.
        theirs: The paper's figure and where it stands.
        experiment: Whose figures decide; "" where it needs a GPU.
        figures: Names of the figures, with * for any part.
        rule: How each of them decides; they must all say the same. None where the figures stand by themselves: the paper has
            a figure, and ours could not have come out otherwise.
        over: What the intervals are over; "" where figures are exact.
        limits: What stands between our figures and the claim, by configs/reproduce-cpu.toml.
        weak: The limits are such that our trainings cannot decide: the verdict is undecided, whatever the figures.
        why: Why it needs a GPU.
    """

    says: str
    theirs: str
    experiment: str = ""
    figures: tuple[str, ...] = ()
    rule: Rule | None = None
    over: str = ""
    limits: str = ""
    weak: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A claim and what became of it.

    Attributes:
        claim: The claim.
        verdict: agrees, disagrees, undecided, no verdict, needs a GPU or not run yet.
        found: The figures that decided, each with its own verdict ("" where there is no rule).
        seeds: Trainings of each kind, which differ in the seed alone; 0 where none are compared.
    """

    claim: Claim
    verdict: str
    found: Sequence[tuple[Measure, str]] = ()
    seeds: int = 0

    @property
    def over(self) -> str:
        """What the intervals are over, so that nobody takes one seed's for more."""
        seeds = f"; training seeds: {self.seeds}" if self.seeds else ""
        return self.claim.over and self.claim.over + seeds

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "claim": self.claim.says,
            "theirs": self.claim.theirs,
            "experiment": self.claim.experiment,
            "rule": "" if self.claim.rule is None else self.claim.rule.words,
            "over": self.over,
            "limits": self.claim.limits,
            "why": self.claim.why,
            "verdict": self.verdict,
            "ours": [own.to_json() | {"verdict": verdict} for own, verdict in self.found],
        }


_SENTENCES = "sentence pairs, for each seed by itself"
_ITEMS = "captions or pictures, for each seed by itself"
_QUERIES = "captions or pictures that ask, each with its mean over seeds"
_QUESTIONS = "questions, each with its mean over seeds"
_PASSAGES = "passages, d being the mean over seeds"

_FEW_SENTENCES = (
    "123 updates of InfoNCE on some 1,400 pairs leave lengths nearly as they were (the untrained figures stand below); the "
    "paper's trainings are of squared error on 950,000 pairs"
)
_FEW_UPDATES = "94 updates of 32 pairs; the paper's are 32,000 of 256"
_SHAPES = "generated shapes and small towers in place of COCO and ViT-B/32"
_OUR_D = (
    f"{_SHAPES}; our d compares items that are right for more queries than the median item with the others, and the paper does "
    "not say how it parts COCO"
)

CLAIMS = (
    # --- the symmetry principle
    Claim(
        "One-sided normalisation costs sentence pairs tens of points",
        "Spearman of qnorm, dnorm − cosine: Contriever −.375, −.417; RetroMAE −.435, −.421 (table 5)",
        "symmetry",
        ("*/trained*/qnorm - cosine", "*/trained*/dnorm - cosine"),
        below(-0.1),
        _SENTENCES,
        _FEW_SENTENCES,
        weak=True,
    ),
    Claim(
        "On symmetric tasks dot is as good as cosine",
        "Contriever −.004, RetroMAE +.001 (table 5)",
        "symmetry",
        ("*/trained*/dot - cosine",),
        near(0.0, 0.01),
        _SENTENCES,
        _FEW_SENTENCES,
        weak=True,
    ),
    Claim(
        "It does not matter which of two sentences is normalised",
        "qnorm − dnorm: Contriever +.042, RetroMAE −.014 (table 5)",
        "symmetry",
        ("*/trained*/qnorm - dnorm",),
        near(0.0, 0.05),
        _SENTENCES,
        _FEW_SENTENCES,
        weak=True,
    ),
    Claim(
        "CLIP: the symmetric loss learns no magnitude, neither side normalised",
        "Cohen's d: images −.65, texts −.06 (table 6, NoNorm), which the paper calls 0; by this rule its images are not",
        "clip",
        ("both/dot/seed */Cohen's d, *",),
        near(0.0, 0.2),
        _ITEMS,
        _OUR_D,
    ),
    Claim(
        "CLIP: the one-directional loss learns magnitude on the side that is searched, neither side normalised",
        "Cohen's d: texts .58 (image → text), images 1.31 (text → image) (table 6, NoNorm)",
        "clip",
        ("*_to_*/dot/seed */Cohen's d, searched *",),
        above(0.2),
        _ITEMS,
        _OUR_D,
    ),
    Claim(
        "CLIP: the one-directional loss learns magnitude on the side that is searched, the side that asks normalised (qnorm)",
        "Cohen's d: texts 1.83 (ImgNorm-I2T), images 2.11 (TxtNorm-T2I) (table 6)",
        "clip",
        ("*_to_*/qnorm/seed */Cohen's d, searched *",),
        above(0.2),
        _ITEMS,
        _OUR_D,
    ),
    Claim(
        "CLIP: a one-directional loss costs more than half of retrieval the other way, neither side normalised",
        "R@1 of the other way by dot, of that by cosine with normalisation and the symmetric loss: text → image 9.6 of 28.0, "
        "share .34; image → text 6.9 of 38.4, share .18 (table 6, NoNorm)",
        "clip",
        ("*_to_*/dot/recall@1 of the other way over both, cosine",),
        below(0.5),
        _QUERIES,
        _SHAPES,
    ),
    Claim(
        "CLIP: a one-directional loss costs more than half of retrieval the other way, the side that asks normalised (qnorm)",
        "ranked as trained, which is by cosine the other way: text → image .3 of 28.0, share .01 (ImgNorm-I2T); image → text 1.9 "
        "of 38.4, share .05 (TxtNorm-T2I); by dot .3 and .2 (table 6)",
        "clip",
        ("*_to_*/qnorm/recall@1 of the other way over both, cosine",),
        below(0.5),
        _QUERIES,
        _SHAPES,
    ),
    # --- conditions
    Claim(
        "From random weights qnorm is behind cosine",
        "nDCG@10 in points: BEIR −8.92, BRIGHT −2.77, multi-hop −7.61 (table 2)",
        "initialisation",
        ("*/random/qnorm - cosine/nDCG@10",),
        below(),
        _QUESTIONS,
        _FEW_UPDATES,
        weak=True,
    ),
    Claim(
        "From pre-trained weights qnorm is ahead of cosine",
        "Contriever: BEIR +3.05, BRIGHT +5.33, multi-hop +6.01 (table 1)",
        "initialisation",
        ("*/pre-trained/qnorm - cosine/nDCG@10",),
        above(),
        _QUESTIONS,
        _FEW_UPDATES,
        weak=True,
    ),
    Claim(
        "qnorm stands better against cosine from pre-trained weights than from random ones",
        "the two above: BEIR +11.97, BRIGHT +8.10, multi-hop +13.62 (tables 1 and 2)",
        "initialisation",
        ("*/pre-trained - random/qnorm - cosine/nDCG@10",),
        above(),
        _QUESTIONS,
        _FEW_UPDATES,
        weak=True,
    ),
    Claim(
        "From random weights relevant passages are the shorter ones under qnorm",
        "Cohen's d: BEIR −.02, BRIGHT −.71, multi-hop −.37 (table 3)",
        "initialisation",
        ("*/random/qnorm/Cohen's d",),
        below(),
        _PASSAGES,
        _FEW_UPDATES,
        weak=True,
    ),
    Claim(
        "From pre-trained weights relevant passages are the longer ones under qnorm",
        "Cohen's d: BEIR +.01, BRIGHT +1.02, multi-hop +.50 (table 3)",
        "initialisation",
        ("*/pre-trained/qnorm/Cohen's d",),
        above(),
        _PASSAGES,
        _FEW_UPDATES,
        weak=True,
    ),
    Claim(
        "qnorm gains more from more pairs than cosine does",
        "qnorm − cosine, E5 from 80,000 to 503,000 pairs: BEIR +1.4, BRIGHT −1.6, multi-hop +.9, which is mixed; the paper rests "
        "on dnorm − cosine: +12.0, +7.8, +27.9 (figure 8, table 16)",
        "pairs",
        ("*/* - * pairs/qnorm - cosine/nDCG@10",),
        above(),
        _QUESTIONS,
        "an encoder that keeps its norms, and 1,000 to 20,000 pairs; the paper's dnorm recovers, with more pairs, from the "
        "normalisation layer that E5 lost. dnorm is not trained here",
    ),
    # --- dynamics
    Claim(
        "The gradient is the formula's",
        "proposition 4.2, T.2; equation 15 lacks the factor α",
        "gradients",
        ("*/analytic against autograd, relative",),
        at_most(1e-10),
    ),
    Claim(
        "A query's norm is a temperature under dot and dnorm, and nothing under cosine and qnorm",
        "τ/‖q‖ (proposition 4.2, of dnorm)",
        "gradients",
        ("*/queries x * against the temperature",),
        at_most(1e-10),
    ),
    Claim(
        "With p held fixed the gradient under dnorm is proportional to the query's norm",
        "power 1: ‖q‖ (1 − p) / τ (proposition 4.2, equation 10)",
        "gradients",
        ("dnorm/power of the query's norm in the gradient, p fixed, *",),
        near(1.0, 1e-6),
        "queries; nothing is trained",
    ),
    Claim(
        "How the gradient under dnorm grows with the query's norm where p follows it",
        "“proportional to ‖q‖” (proposition 4.2), which leaves out that 1 − p falls as the norm grows where the positive is ahead",
        "gradients",
        ("dnorm/power of the query's norm in the gradient, p free, *",),
        over="queries; nothing is trained",
        limits="how far p follows depends on α and on how hard the negatives are",
    ),
    Claim(
        "A side that is normalised has no gradient along its vector",
        "0 (T.2)",
        "gradients",
        (
            "cosine/* gradient along the vector",
            "qnorm/query gradient along the vector",
            "dnorm/passage gradient along the vector",
        ),
        at_most(1e-10),
    ),
    Claim(
        "Trained by dnorm queries differ more in length than trained by dot",
        "ratio of variations: RetroMAE 6.1, Contriever 1.3 (table 19)",
        "gradients",
        ("trained/variation of query norms, dnorm over dot",),
        above(1.0),
        "queries of one training each",
        "the two shipped adapters have a linear layer behind normalised vectors, which starts with all lengths equal, and 120 updates",
        weak=True,
    ),
    # --- learnable exponents
    Claim(
        "With the encoder's learning rate γ ends near ½",
        ".499 Contriever, .502 RetroMAE after 32,000 updates (figure 4)",
        "gamma",
        ("paper/* at the end", "paper/* farthest from its start", "paper/what the rate allows"),
        over="seeds",
        limits="a γ gets no farther than ¼ of the sum of its rates: that is .008 in the paper's recipe for Contriever and .020 for "
        "RetroMAE, so it must end near ½ whatever the data say",
    ),
    Claim(
        "A contrastively pre-trained encoder drifts towards dot",
        "Contriever, γ near .499 (figure 4)",
        "gamma",
        ("own/* at the end",),
        below(0.5),
        "seeds",
        "60 updates at a rate of their own: the direction alone is judged",
    ),
    # --- what two cores cannot do
    Claim(
        "All variants that keep a magnitude are ahead of cosine",
        "table 1: Contriever and RetroMAE, 100 epochs of 81,795 pairs; its Contriever falls behind on DL 19 and DL 20",
        why="configs/train-paper-*.toml: 32,000 updates of 256 pairs with encoders of 110 million parameters",
    ),
    Claim(
        "Cohen's d predicts what qnorm gains",
        "r over some 40 data sets: .57 Contriever; .68 RetroMAE without one set, .08 with it (figure 3)",
        why="the trainings above, and corpora of up to 8.8 million passages",
    ),
    Claim(
        "E5 without its normalisation layer collapses",
        "cosine .227 against dot .944 (table 18)",
        why="configs/train-paper-e5.toml",
    ),
    Claim(
        "Answers gain as rankings do",
        "EM of qnorm − cosine: NQ +3.1, HotpotQA +5.5, TriviaQA +7.9 (table 4)",
        why="the paper's Contriever checkpoints, all of Wikipedia and Flan-T5-Large",
    ),
)


def judge(figures: Mapping[str, Sequence[Measure]], seeds: Mapping[str, int] = MappingProxyType({})) -> list[Judgement]:
    """Every claim.

    Args:
        figures: Of the experiments that were run, by name.
        seeds: How many training seeds each of them has.
    """
    return [_judge(claim, figures, seeds.get(claim.experiment, 0)) for claim in CLAIMS]


def _judge(claim: Claim, figures: Mapping[str, Sequence[Measure]], seeds: int) -> Judgement:
    if not claim.experiment:
        return Judgement(claim, NEEDS_GPU)
    if claim.experiment not in figures:
        return Judgement(claim, NOT_RUN, seeds=seeds)
    rule = claim.rule
    found = [
        (own, "" if rule is None else rule.judge(own))
        for own in figures[claim.experiment]
        if any(fnmatchcase(own.name, pattern) for pattern in claim.figures)
    ]
    if rule is None:
        return Judgement(claim, NO_VERDICT, found, seeds)
    # A configuration may leave out what a claim is about.
    decided = bool(found) and not claim.weak
    return Judgement(claim, together([verdict for _, verdict in found]) if decided else UNDECIDED, found, seeds)
