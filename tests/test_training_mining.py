"""Which passages become negatives, which must not count as any, and the command that says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rag_app.cli import app
from rag_app.config import load_config
from rag_app.errors import ConfigError
from rag_app.training.mine import mine_pairs
from retriever.base import Retriever
from retriever.build import build_index
from retriever.dense import DenseRetriever
from retriever.errors import RetrieverError
from retriever.index import Index
from retriever.lexical import BM25Retriever, BM25Settings
from retriever.passages import Passage
from retriever.search.exact import ExactSearcher
from retriever.similarity import COSINE, DNORM, DOT, QNORM, Similarity
from retriever.training.masking import false_negatives, known_positives, passage_keys
from retriever.training.mining import MiningSettings, answers_from, holds_answer, mine
from retriever.training.pairs import TrainingPair, passages_of, read_pairs, write_pairs
from retriever.training.pool import bm25_over
from tests.one_encoder import untrained
from tests.test_cli import magrag, one_line_error
from tests.vectors import ListCorpus, RandomEncoder, some_passages


def passage(name: str, text: str = "", title: str = "") -> Passage:
    return Passage(name, title, text or f"text of {name}")


class TestMasking:
    def test_the_same_document_and_known_positives_are_left_out_and_the_target_never(self) -> None:
        p1, p2, p3 = passage("1"), passage("2"), passage("3")
        copy = passage("1 elsewhere", "text  of\n1")
        batch = [TrainingPair("Who?", p1), TrainingPair("what", p2), TrainingPair("when", p1)]
        known = known_positives([*batch, TrainingPair("who", p3)])
        columns = [p1, p2, p1, p3, copy, passage("4")]
        expected = [
            #  p1     p2     p1     p3    copy    4
            [False, False, True, True, True, False],
            [False, False, False, False, False, False],
            [True, False, False, False, True, False],
        ]
        found = false_negatives(batch, columns, known)
        assert found.dtype == bool and found.tolist() == expected
        # Without knowledge of other pairs p3 counts as a negative of "who".
        assert false_negatives(batch, columns, {})[0].tolist() == [False, False, True, False, True, False]

    def test_columns_that_hold_each_passage_once_keep_each_target(self) -> None:
        p1, p2 = passage("1"), passage("2")
        copy = passage("copy", p2.text)
        batch = [TrainingPair("a", p1), TrainingPair("b", p1), TrainingPair("c", p2)]
        found = false_negatives(batch, [p1, copy, p2], known_positives(batch))
        assert found.tolist() == [[False] * 3, [False] * 3, [False, True, False]]

    def test_it_equals_the_definition_on_random_batches(self) -> None:
        rng = np.random.default_rng(0)
        pool = [Passage(f"p{i}", "", f"t{i // 2}") for i in range(20)]
        pairs = [TrainingPair(f"q{rng.integers(8)}", pool[rng.integers(20)]) for _ in range(40)]
        known = known_positives(pairs)
        for _ in range(20):
            batch = [pairs[i] for i in rng.integers(40, size=6)]
            columns = [pair.positive for pair in batch] + [pool[i] for i in rng.integers(20, size=5)]
            for row, pair in enumerate(batch):
                good = {key for own in pairs if own.query == pair.query for key in passage_keys(own.positive)}
                wanted = [
                    column != row and not good.isdisjoint(passage_keys(other)) for column, other in enumerate(columns)
                ]
                assert false_negatives(batch, columns, known)[row].tolist() == wanted


TEXTS = {
    "a": "the heron nests by the river in spring",
    "b": "the heron eats fish from the river",
    "c": "herons and storks stand in the river all day",
    "d": "a barge on the river carries coal",
    "e": "coal is burnt in mills",
}
HERON = "where does the heron nest by the river"


@pytest.fixture
def corpus() -> dict[str, Passage]:
    return {name: Passage(name, "", text) for name, text in TEXTS.items()}


def negatives(pair: TrainingPair) -> str:
    return "".join(own.id for own in pair.negatives)


class TestMining:
    """The ranking of HERON under BM25 is a, b, c, d, checked below; "heron" and "river" weigh most."""

    def mined(self, corpus: dict[str, Passage], pair: TrainingPair, *others: TrainingPair, **settings: object):  # type: ignore[no-untyped-def]
        options = MiningSettings(**{"negatives": 2, "depth": 5, **settings})  # type: ignore[arg-type]
        with bm25_over(list(corpus.values()), BM25Settings(stemmer="english")) as retriever:
            ranking = [hit.passage.id for hit in retriever.retrieve([HERON], 5).hits[0]]
            assert ranking == ["a", "b", "c", "d"]
            pairs, report = mine([pair, *others], retriever, options)
        assert report.mined + report.given == sum(len(own.negatives) for own in pairs)
        return pairs[0], report

    def test_the_highest_that_are_no_positives_are_taken_in_order(self, corpus: dict[str, Passage]) -> None:
        pair, report = self.mined(corpus, TrainingPair(HERON, corpus["a"]))
        assert negatives(pair) == "bc"
        assert (dict(report.dropped), report.mined, report.short, report.unanswered) == ({"positive": 1}, 2, 0, 1)

    def test_another_pairs_positive_for_the_query_is_known(self, corpus: dict[str, Passage]) -> None:
        other = TrainingPair(HERON.upper() + "?", corpus["b"])
        pair, report = self.mined(corpus, TrainingPair(HERON, corpus["a"]), other)
        assert negatives(pair) == "cd"
        assert report.dropped["positive"] == 4, "a and b, for each of the two"

    def test_a_copy_of_the_positive_under_another_id_is_no_negative(self, corpus: dict[str, Passage]) -> None:
        pair, _ = self.mined(corpus, TrainingPair(HERON, Passage("elsewhere", "Heron", TEXTS["a"])))
        assert negatives(pair) == "bc"

    @pytest.mark.parametrize("joint", [". ", "\n", " - ", " "])
    def test_a_positive_with_its_title_in_the_text_is_known_where_the_two_are_apart(self, joint: str) -> None:
        corpus = {name: Passage(name, "Grey birds", text) for name, text in TEXTS.items()}
        whole = Passage("whole", "", f"Grey birds{joint}{TEXTS['a']}.")
        pair, report = self.mined(corpus, TrainingPair(HERON, whole))
        assert (negatives(pair), dict(report.dropped), report.beyond, report.ranked) == ("bc", {"positive": 1}, 0, 1)
        assert set(passage_keys(whole)) & set(passage_keys(corpus["a"])) and not whole.title
        assert not set(passage_keys(whole)) & set(passage_keys(corpus["b"]))

    def test_reserved_passages_are_left_out_by_id_or_text(self, corpus: dict[str, Passage]) -> None:
        pairs = [TrainingPair(HERON, corpus["a"]), TrainingPair("storks stand in the river", corpus["c"])]
        with bm25_over(list(corpus.values()), BM25Settings(stemmer="english")) as retriever:
            reserved = [corpus["b"], Passage("elsewhere", "", TEXTS["d"])]
            found, report = mine(pairs, retriever, MiningSettings(negatives=2, depth=5), reserved=reserved)
        assert [negatives(pair) for pair in found] == ["c", "ae"]
        assert report.dropped["reserved"] >= 3 and "held out" in report.summary()

    def test_passages_that_hold_an_answer_are_left_out(self, corpus: dict[str, Passage]) -> None:
        pair = TrainingPair(HERON, corpus["a"], answers=("All day", "coal"))
        found, report = self.mined(corpus, pair)
        assert (negatives(found), dict(report.dropped)) == ("b", {"positive": 1, "answer": 2})
        assert (report.short, report.bare, report.unanswered) == (1, 0, 0)
        assert negatives(self.mined(corpus, pair, answer_filter=False)[0]) == "bc"

    def test_ranks_at_the_top_are_skipped(self, corpus: dict[str, Passage]) -> None:
        pair, report = self.mined(corpus, TrainingPair(HERON, corpus["c"]), skip=2)
        assert (negatives(pair), dict(report.dropped)) == ("d", {"rank": 2, "positive": 1})

    def test_given_negatives_stay_first_and_are_filled_up(self, corpus: dict[str, Passage]) -> None:
        given = TrainingPair(HERON, corpus["a"], (corpus["e"],))
        pair, report = self.mined(corpus, given)
        assert (negatives(pair), report.given, report.mined) == ("eb", 1, 1)
        full = TrainingPair(HERON, corpus["a"], tuple(corpus[name] for name in "edb"))
        pair, report = self.mined(corpus, full)
        assert (pair, report.given, report.mined, report.dropped.total()) == (full, 3, 0, 0)
        pair, report = self.mined(corpus, TrainingPair(HERON, corpus["a"], (corpus["b"],)))
        assert (negatives(pair), report.dropped["repeated"]) == ("bc", 1)

    def test_a_margin_is_a_share_of_the_positives_own_score(self, corpus: dict[str, Passage]) -> None:
        with bm25_over(list(corpus.values()), BM25Settings(stemmer="english")) as retriever:
            scores = {hit.passage.id: hit.score for hit in retriever.retrieve([HERON], 5).hits[0]}
            pair = TrainingPair(HERON, corpus["b"])
            for margin in (1.0, scores["c"] / scores["b"] + 1e-6, scores["c"] / scores["b"] - 1e-6):
                (found,), _ = mine([pair], retriever, MiningSettings(negatives=4, depth=5, margin=margin))
                wanted = [name for name in "acd" if scores[name] <= margin * scores["b"]]
                assert negatives(found) == "".join(wanted)
            assert wanted == ["d"]
            (found,), report = mine([TrainingPair(HERON, corpus["e"])], retriever, MiningSettings(margin=0.9))
            assert (found.negatives, report.beyond, report.bare) == ((), 1, 1)
            assert report.dropped == {"unscored": 4} and "to measure the margin by" in report.summary()

    def test_batches_change_nothing_and_queries_without_hits_stay_bare(self, corpus: dict[str, Passage]) -> None:
        pairs = [TrainingPair(query, corpus["a"]) for query in (HERON, "zebra", "coal", "fish", "mill river")]
        told: list[tuple[int, int | None]] = []
        with bm25_over(list(corpus.values())) as retriever:
            whole, report = mine(pairs, retriever, MiningSettings())
            parts, other = mine(pairs, retriever, MiningSettings(batch_size=2), lambda *done: told.append(done))
        assert (whole, report) == (parts, other)
        assert told == [(2, 5), (4, 5), (5, 5)]
        assert report.bare == 1 and whole[1] == pairs[1]
        assert report.to_json()["dropped"] == dict(report.dropped) and "5 pairs" in report.summary()

    @pytest.mark.parametrize("similarity", [COSINE, DOT, QNORM, DNORM])
    def test_a_dense_retriever_ranks_by_its_own_similarity(self, tmp_path: Path, similarity: Similarity) -> None:
        """The oracle is numpy on the raw vectors; a negative score's margin lies below it too."""
        passages = some_passages(40)
        encoder = RandomEncoder()
        index = build_index(ListCorpus(passages), encoder, tmp_path / "i")
        retriever: Retriever = DenseRetriever("d", encoder, similarity, index, ExactSearcher(index, "cpu"))  # type: ignore[arg-type]
        pairs = [TrainingPair(f"query {i}", passages[i]) for i in range(12)]
        found, report = mine(pairs, retriever, MiningSettings(negatives=3, depth=40, margin=0.9))
        documents = encoder.encode_passages(passages)
        queries = encoder.encode_queries([pair.query for pair in pairs])
        scores = queries.units @ documents.units.T
        scores *= (queries.norms[:, None] ** (1 - similarity.gamma_q)) * documents.norms ** (1 - similarity.gamma_d)
        signs = set()
        for row, pair in enumerate(found):
            own = scores[row, row]
            signs.add(own > 0)
            limit = own * 0.9 if own > 0 else own * 1.1
            order = [i for i in np.argsort(-scores[row]) if i != row and scores[row, i] <= limit]
            assert [own.id for own in pair.negatives] == [f"p{i}" for i in order[:3]]
        assert signs == {True, False} and report.beyond == 0
        assert all(not own.meta for pair in found for own in pair.negatives)

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"negatives": 0}, "negatives must be at least 1, got 0"),
            ({"depth": 0}, "depth must be at least 1"),
            ({"skip": 50}, "skip must be at least 0 and less than depth 50, got 50"),
            ({"margin": 1.5}, "margin must be above 0 and at most 1, got 1.5"),
        ],
    )
    def test_settings_that_cannot_be_are_refused(self, settings: dict[str, float], said: str) -> None:
        with pytest.raises(RetrieverError, match=said):
            MiningSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "text", "expected"),
    [
        (["Gustave Eiffel"], "built by GUSTAVE EIFFEL's company", True),
        (["ten"], "it happens often", False),
        (["U.S."], "in the U.S. alone", True),
        (["The Beatles"], "the  beatles' song", True),
        (["yes", "no"], "no, yes", False),
        (["..."], "...", False),
        (["東京"], "それは東京です", True),
        (["東京"], "京東", False),
        (["café"], "the cafe\u0301 there", True),
        ([], "anything", False),
    ],
)
def test_an_answer_is_found_by_whole_words(answers: list[str], text: str, expected: bool) -> None:
    assert holds_answer(Passage("p", "", text), answers) is expected
    assert holds_answer(Passage("p", text, "x"), answers) is expected


def test_answers_do_not_cross_from_title_into_text() -> None:
    assert not holds_answer(Passage("p", "New", "York"), ["New York"])


def test_answers_of_other_pairs_are_taken_for_the_same_query() -> None:
    p = passage("p")
    others = [TrainingPair("Who wrote it", p, answers=("a",)), TrainingPair("who wrote it?", p, answers=("b", "a"))]
    pairs = [TrainingPair("who wrote it?", p), TrainingPair("who wrote it?", p, answers=("own",)), TrainingPair("x", p)]
    assert [pair.answers for pair in answers_from(pairs, others)] == [("a", "b"), ("own", "a", "b"), ()]


def test_bm25_over_a_pool_ranks_as_over_an_index(tmp_path: Path) -> None:
    passages = some_passages(50)
    settings = BM25Settings(stemmer="english")
    index: Index = build_index(ListCorpus(passages), RandomEncoder(), tmp_path / "i")  # type: ignore[arg-type]
    questions = ["the river near the tower", "comet", "zebra"]
    with bm25_over(passages, settings) as pool:
        assert pool.retrieve(questions, 10).hits == BM25Retriever("bm25", index, settings).retrieve(questions, 10).hits
        folder = pool.index.folder
        assert folder.is_dir() and len(pool.index) == 50 and list(pool.index.passages()) == passages
        first = pool.index.fingerprint
    assert not folder.exists()
    with bm25_over(passages[1:]) as other:
        assert other.index.fingerprint != first


class TestMinePairs:
    def test_known_pairs_lend_positives_and_answers_and_become_no_results(self, corpus: dict[str, Passage]) -> None:
        pairs = [TrainingPair(HERON, corpus["a"], (corpus["d"], corpus["e"])), TrainingPair("fish", corpus["b"])]
        pairs.append(TrainingPair("storks", corpus["c"]))
        known = [TrainingPair(HERON, corpus["b"], answers=("storks",))]
        found, report = mine_pairs(
            pairs, load_config(), "bm25", MiningSettings(negatives=4), log=lambda line: None, known=known
        )
        assert [pair.query for pair in found] == [HERON, "fish", "storks"]
        assert negatives(found[0]) == "de" and found[0].answers == ("storks",)
        assert {"positive", "answer"} <= set(report.dropped)

    @pytest.mark.parametrize("retriever", ["bm25", "twice"])
    def test_words_rank_a_corpus_without_an_encoder_and_keep_their_matrix(
        self, corpus: dict[str, Passage], tmp_path: Path, retriever: str
    ) -> None:
        file = tmp_path / "corpus.jsonl"
        file.write_text("".join(json.dumps({"id": key, "text": text}) + "\n" for key, text in TEXTS.items()))
        table = tmp_path / "c.toml"
        table.write_text('[retrievers.twice]\nkind = "iterative"\nof = ["bm25"]\nrounds = 1\n')
        config = load_config(
            table, [f'data_dir="{tmp_path}"', f'corpus="{file}"', f'encoders.minilm.model="{tmp_path / "absent"}"']
        )
        pairs = [TrainingPair(HERON, corpus["a"])]
        said: list[str] = []
        settings = MiningSettings(negatives=3)
        for _ in range(2):
            found, _ = mine_pairs(pairs, config, retriever, settings, log=said.append, own_passages=False)
            assert negatives(found[0]) == "bcd"
        assert all("reading" in line and "without an encoder" in line for line in said) and len(said) == 2
        assert len(list((tmp_path / "words").glob("*/bm25-*"))) == 1 and not (tmp_path / "indexes").exists()
        elsewhere = [TrainingPair(HERON, Passage("x", "", "cut in another place"))]
        mine_pairs(elsewhere, config, retriever, settings, log=said.append, own_passages=False)
        assert "most positives (1 of 1)" in said[-1] and "--title-separator" in said[-1]

    def test_a_ranking_made_elsewhere_is_refused(self, corpus: dict[str, Passage], tmp_path: Path) -> None:
        file = tmp_path / "c.toml"
        file.write_text('[retrievers.run]\nkind = "trec_run"\npath = "x.run"\n')
        with pytest.raises(ConfigError, match=r"retrievers\.run is a ranking made elsewhere"):
            mine_pairs(
                [TrainingPair("q", corpus["a"])], load_config(file), "run", MiningSettings(), log=lambda line: None
            )

    @pytest.mark.model
    def test_minilm_mines_over_the_pairs_passages_and_keeps_their_index(
        self, corpus: dict[str, Passage], tmp_path: Path, minilm_folder: Path
    ) -> None:
        config = load_config(None, [f'data_dir="{tmp_path}"', *untrained(minilm_folder)])
        pairs = [
            TrainingPair(HERON, corpus["a"], (corpus["e"], corpus["d"])),
            TrainingPair("what birds eat", corpus["b"]),
        ]
        pairs.append(TrainingPair("big wading birds", corpus["c"]))
        said: list[str] = []
        found, _ = mine_pairs(pairs, config, "cosine", MiningSettings(negatives=4, depth=5), log=said.append)
        assert negatives(found[0]) == "edbc"
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(minilm_folder), device="cpu")
        pool = passages_of(pairs)
        for pair in found[1:]:
            scores = model.encode([own.text for own in pool], normalize_embeddings=True) @ model.encode(
                pair.query, normalize_embeddings=True
            )
            ranked = [pool[i].id for i in np.argsort(-scores) if pool[i].id != pair.positive.id]
            assert negatives(pair) == "".join(ranked[:4])
        (kept,) = (Path(line.rsplit(" ", 1)[1]) for line in said if "kept in" in line)
        assert len(kept.read_text("utf-8").splitlines()) == len(pool)
        assert len(list((tmp_path / "indexes").iterdir())) == 1
        mine_pairs(pairs, config, "qnorm", MiningSettings(negatives=4, depth=5), log=said.append)
        assert len(list((tmp_path / "indexes").iterdir())) == 1, "one index serves every similarity, and is made once"


class TestCommand:
    @pytest.fixture
    def pairs(self, corpus: dict[str, Passage], tmp_path: Path) -> Path:
        path = tmp_path / "pairs.jsonl"
        write_pairs(path, [TrainingPair(HERON, corpus["a"]), TrainingPair("coal mill", corpus["e"], (corpus["b"],))])
        return path

    def test_it_writes_pairs_with_negatives_and_tells_what_it_left_out(self, pairs: Path, tmp_path: Path) -> None:
        asked = tmp_path / "asked.jsonl"
        asked.write_text('{"id": "1", "question": "Coal, mill?", "answers": ["x"]}\n')
        out = tmp_path / "mined.jsonl"
        done = magrag("mine", pairs, out, "--negatives", "1", "--json")
        assert done.returncode == 0, done.stderr
        assert [negatives(pair) for pair in read_pairs(out)] == ["b", "b"]
        told = json.loads(done.stdout)
        assert (told["leaked"], told["report"]["mined"], told["report"]["given"]) == (0, 1, 1)
        done = magrag("mine", pairs, out, "--evaluation", asked)
        assert done.returncode == 0, done.stderr
        assert [pair.query for pair in read_pairs(out)] == [HERON]
        assert "1 pair left out, whose query an evaluation asks" in done.stderr

    def test_known_pairs_have_the_columns_of_the_pairs_or_the_usual_ones(
        self, corpus: dict[str, Passage], tmp_path: Path
    ) -> None:
        path, out = tmp_path / "renamed.jsonl", tmp_path / "mined.jsonl"
        row = {"frage": HERON, "stelle": TEXTS["a"], "negatives": [TEXTS["e"]], "answers": ["spring"]}
        others = [{"frage": other, "stelle": TEXTS[name]} for other, name in (("x", "b"), ("y", "c"), ("z", "d"))]
        path.write_text("".join(json.dumps(own) + "\n" for own in (row, *others)))
        renamed, usual, neither = (tmp_path / f"{name}.jsonl" for name in ("renamed-known", "usual", "neither"))
        renamed.write_text(json.dumps({"frage": HERON, "stelle": TEXTS["b"]}) + "\n")
        usual.write_text(json.dumps({"query": HERON, "positive": TEXTS["a"], "answers": ["storks"]}) + "\n")
        neither.write_text(json.dumps({"q": HERON, "p": "x"}) + "\n")
        runner = CliRunner()
        command = ["mine", str(path), str(out), "--column", "query=frage", "--column", "positive=stelle"]
        done = runner.invoke(app, [*command, "--known", str(renamed), "--known", str(usual)])
        assert done.exit_code == 0, done.output
        (pair, *_) = read_pairs(out)
        assert [own.text for own in pair.negatives] == [TEXTS["e"], TEXTS["d"]] and pair.answers == ("spring", "storks")
        done = runner.invoke(app, [*command, "--known", str(neither)])
        assert isinstance(done.exception, ConfigError)
        assert 'column "frage" (our query) is missing' in str(done.exception)
        assert "without --column: " in str(done.exception)

    def test_mistakes_end_in_one_line(self, pairs: Path, tmp_path: Path) -> None:
        out = tmp_path / "mined.jsonl"
        for arguments, said, code in (
            ((pairs, pairs), "is the file that is read", 2),
            ((pairs, out, "-r", "bm52"), "bm25", 2),
            ((pairs, out, "--margin", "2"), "margin must be above 0", 1),
            ((tmp_path / "absent", out), "no such file", 1),
        ):
            assert said in one_line_error(magrag("mine", *arguments), code)
        assert not out.exists()
        assert magrag("mine", pairs, out, "--column", "query").returncode == 2
