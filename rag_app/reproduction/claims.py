"""What the paper claims, which figures of an experiment decide it, and by what rule.

The figures of the paper are those of arXiv 2602.09229v1, at the place that stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from rag_app.reproduction.measures import (
    NEEDS_GPU,
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
        rule: How each of them decides; they must all say the same.
        why: Why it needs a GPU.
    """

    says: str
    theirs: str
    experiment: str = ""
    figures: tuple[str, ...] = ()
    rule: Rule | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A claim and what became of it.

    Attributes:
        claim: The claim.
        verdict: agrees, disagrees, undecided, needs a GPU or not run yet.
        found: The figures that decided, each with its own verdict.
    """

    claim: Claim
    verdict: str
    found: Sequence[tuple[Measure, str]] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "claim": self.claim.says,
            "theirs": self.claim.theirs,
            "experiment": self.claim.experiment,
            "rule": "" if self.claim.rule is None else self.claim.rule.words,
            "why": self.claim.why,
            "verdict": self.verdict,
            "ours": [own.to_json() | {"verdict": verdict} for own, verdict in self.found],
        }


CLAIMS = (
    # --- the symmetry principle
    Claim(
        "One-sided normalisation costs sentence pairs tens of points",
        "Spearman of qnorm, dnorm − cosine: Contriever −.375, −.417; RetroMAE −.435, −.421 (table 5)",
        "symmetry",
        ("*/trained*/qnorm - cosine", "*/trained*/dnorm - cosine"),
        below(-0.1),
    ),
    Claim(
        "The same without training: scores alone",
        "follows from corollary 6.1; not measured",
        "symmetry",
        ("*/untrained/qnorm - cosine", "*/untrained/dnorm - cosine"),
        below(-0.1),
    ),
    Claim(
        "On symmetric tasks dot is as good as cosine",
        "Contriever −.004, RetroMAE +.001 (table 5)",
        "symmetry",
        ("*/trained*/dot - cosine",),
        near(0.0, 0.01),
    ),
    Claim(
        "It does not matter which of two sentences is normalised",
        "Contriever +.042, RetroMAE −.014 (table 5)",
        "symmetry",
        ("*/trained*/qnorm - dnorm",),
        near(0.0, 0.05),
    ),
    Claim(
        "CLIP: the symmetric loss learns no magnitude",
        "Cohen's d without normalisation: images −.65, texts −.06 (table 6)",
        "clip",
        ("both/dot/seed */Cohen's d, *",),
        near(0.0, 0.2),
    ),
    Claim(
        "CLIP: the one-directional loss learns it on the side that is searched",
        "Cohen's d without normalisation: texts 1.83 (image → text), images 2.11 (text → image) (table 6)",
        "clip",
        ("*_to_*/dot/seed */Cohen's d, searched *",),
        above(0.2),
    ),
    Claim(
        "CLIP: after a one-directional loss retrieval the other way is lost",
        "R@1 by dot .3 and .2, with normalisation and the symmetric loss 26.3 and 32.8 (table 6)",
        "clip",
        ("*_to_*/dot/recall@1 of the other way - both, cosine",),
        below(-0.1),
    ),
    # --- conditions
    Claim(
        "From random weights qnorm is behind cosine",
        "nDCG@10 in points: BEIR −8.92, BRIGHT −2.77, multi-hop −7.61 (table 2)",
        "initialisation",
        ("*/random/qnorm - cosine/nDCG@10",),
        below(),
    ),
    Claim(
        "From pre-trained weights qnorm is ahead of cosine",
        "Contriever: BEIR +3.05, BRIGHT +5.33, multi-hop +6.01 (table 1)",
        "initialisation",
        ("*/pre-trained/qnorm - cosine/nDCG@10",),
        above(),
    ),
    Claim(
        "Pre-training is what lets magnitude help",
        "the two above: BEIR +11.97, BRIGHT +8.10, multi-hop +13.62 (tables 1 and 2)",
        "initialisation",
        ("*/pre-trained - random/qnorm - cosine/nDCG@10",),
        above(),
    ),
    Claim(
        "From random weights relevant passages are the shorter ones under qnorm",
        "Cohen's d: BEIR −.02, BRIGHT −.71, multi-hop −.37 (table 3)",
        "initialisation",
        ("*/random/qnorm/Cohen's d",),
        below(),
    ),
    Claim(
        "From pre-trained weights relevant passages are the longer ones under qnorm",
        "Cohen's d: BEIR +.01, BRIGHT +1.02, multi-hop +.50 (table 3)",
        "initialisation",
        ("*/pre-trained/qnorm/Cohen's d",),
        above(),
    ),
    Claim(
        "Magnitude gains more from more pairs than cosine does",
        "E5, 80,000 to 503,000 pairs, dnorm less cosine: BEIR +12.0, BRIGHT +7.8, multi-hop +27.9; qnorm less cosine: "
        "+1.4, −1.6, +.9 (figure 8, table 16)",
        "pairs",
        ("*/* - * pairs/qnorm - cosine/nDCG@10",),
        above(),
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
        "τ/‖q‖ (proposition 4.2)",
        "gradients",
        ("*/queries x * against the temperature",),
        at_most(1e-10),
    ),
    Claim(
        "Under dnorm the gradient grows in proportion to the query's norm",
        "power 1 (proposition 4.2); equation 10 has the factor 1 − p, which falls",
        "gradients",
        ("dnorm/power of the query's norm in the gradient, *",),
        near(1.0, 0.05),
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
    ),
    # --- learnable exponents
    Claim(
        "With the encoder's learning rate γ stays within .02 of where it starts",
        ".499 Contriever, .502 RetroMAE after 32,000 updates (figure 4)",
        "gamma",
        ("paper/* farthest from its start",),
        at_most(0.02),
    ),
    Claim(
        "A contrastively pre-trained encoder drifts towards dot",
        "Contriever, both γ below .5 (figure 4)",
        "gamma",
        ("own/* at the end",),
        below(0.5),
    ),
    # --- what two cores cannot do
    Claim(
        "All variants that keep a magnitude are ahead of cosine",
        "table 1: Contriever and RetroMAE, 100 epochs of 81,795 pairs",
        why="configs/train-paper-*.toml: 32,000 updates of 256 pairs with encoders of 110 million parameters",
    ),
    Claim(
        "Cohen's d predicts what qnorm gains",
        "r = .57 Contriever, .68 RetroMAE over some 40 data sets (figure 3)",
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


def judge(figures: Mapping[str, Sequence[Measure]]) -> list[Judgement]:
    """Every claim.

    Args:
        figures: Of the experiments that were run, by name.
    """
    return [_judge(claim, figures) for claim in CLAIMS]


def _judge(claim: Claim, figures: Mapping[str, Sequence[Measure]]) -> Judgement:
    if claim.rule is None:
        return Judgement(claim, NEEDS_GPU)
    if claim.experiment not in figures:
        return Judgement(claim, NOT_RUN)
    rule = claim.rule
    found = [
        (own, rule.judge(own))
        for own in figures[claim.experiment]
        if any(fnmatchcase(own.name, pattern) for pattern in claim.figures)
    ]
    # A configuration may leave out what a claim is about.
    return Judgement(claim, together([verdict for _, verdict in found]) if found else UNDECIDED, found)
