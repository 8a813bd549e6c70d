"""The shelf of people's corpora, with the real MiniLM on small files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from rag_app.config import Config, load_config
from rag_app.errors import ConfigError
from rag_app.gathering import NO_COLUMN, Step
from rag_app.pipeline import Pipeline
from rag_app.shelf import DELETED, META, UNFINISHED, Shelf
from retriever.chunking import Chunking
from tests.one_encoder import untrained

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

OTTERS = "Sea otters hold hands while they sleep, so that they do not drift apart."
TRAINS = "The Semmering railway was the first mountain railway in Europe with a standard track."
ANNA, BEN = "browser:anna", "browser:ben"


@pytest.fixture
def config(tmp_path: Path, data_dir: Path, minilm_folder: Path) -> Config:
    """The demo's retrievers, with a data folder that is empty but for the model's own."""
    return load_config(None, [f'data_dir="{tmp_path / "data"}"', *untrained(minilm_folder)], {})


@pytest.fixture
def shelf(config: Config) -> Shelf:
    return Shelf(Pipeline(config))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    place = tmp_path / "brought"
    place.mkdir()
    (place / "otters.txt").write_text(OTTERS)
    (place / "trains.md").write_text(f"# Railways\n\n{TRAINS}")
    return [place / "otters.txt", place / "trains.md"]


def test_a_new_corpus_is_searched_at_once_by_every_retriever(shelf: Shelf, files: list[Path]) -> None:
    steps: list[Step] = []
    added = shelf.add(ANNA, "Mine", files, step=steps.append)
    assert added.faults == ()
    assert (added.corpus.name, added.corpus.passages, added.corpus.source) == ("Mine", 2, "otters.txt and 1 more")
    assert [corpus.id for corpus in shelf.corpora(ANNA)] == ["", added.corpus.id]
    pipeline = shelf.pipeline(added.corpus.id, ANNA)
    assert shelf.pipeline(added.corpus.id, ANNA) is pipeline
    for name in ("cosine", "qnorm", "dot", "dnorm", "bm25", "hybrid"):
        hits = pipeline.search(["Which animals hold hands when sleeping?"], name, 1)[0].hits
        assert [hit.passage.text for hit in hits] == [OTTERS], name
    # The scores are those of numpy over the model's own vectors.
    encoder = pipeline.stores.encoder("minilm")
    raw = np.asarray(encoder.model.encode([f"otters {OTTERS}", "sleepy animals"]))
    hit = pipeline.search(["sleepy animals"], "qnorm", 1)[0].hits[0]
    norms = np.linalg.norm(raw, axis=1)
    assert hit.norm == pytest.approx(norms[0], rel=1e-4)
    assert hit.score == pytest.approx(raw[0] @ raw[1] / norms[1], rel=1e-4)
    assert [(s.stage, s.what) for s in steps][:2] == [("reading", "otters.txt"), ("reading", "trains.md")]
    assert steps[-1] == Step("encoding", "minilm", 2, 2)
    assert encoder is shelf.pipeline("", ANNA).stores.encoder("minilm")


def test_nobody_reaches_the_corpora_of_another(shelf: Shelf, files: list[Path], tmp_path: Path) -> None:
    id = shelf.add(ANNA, "Mine", files[:1]).corpus.id
    assert [corpus.id for corpus in shelf.corpora(BEN)] == [""] == [corpus.id for corpus in shelf.corpora("")]
    folder = next((tmp_path / "data/corpora").glob(f"*/{id}"))
    paths = [id, f"../{folder.parent.name}/{id}", str(folder), "..", ".", "x" * 16, "0" * 16]
    for corpus in paths:
        for owner in (BEN, ""):
            with pytest.raises(ConfigError, match="is not there"):
                shelf.pipeline(corpus, owner)
            with pytest.raises(ConfigError, match="is not there"):
                shelf.rename(corpus, owner, "Taken")
            with pytest.raises(ConfigError, match="is not there"):
                shelf.delete(corpus, owner)
    with pytest.raises(ConfigError, match="is not there"):
        shelf.delete("", ANNA)
    assert [corpus.name for corpus in shelf.corpora(ANNA)] == ["Demo corpus", "Mine"]
    with pytest.raises(ConfigError, match="keeps no data"):
        shelf.add("", "Nobody's", files)


def test_corpora_are_renamed_and_deleted_and_found_again_by_another_page(
    shelf: Shelf, config: Config, files: list[Path], tmp_path: Path
) -> None:
    first = shelf.add(ANNA, "", files[:1]).corpus
    second = shelf.add(ANNA, "otters", files[:1]).corpus
    assert (first.name, second.name) == ("otters", "otters (2)")
    renamed = shelf.rename(second.id, ANNA, "  <b>Sea</b>\n otters\x00 ")
    assert renamed.name == "<b>Sea</b> otters"
    with pytest.raises(ConfigError, match="the name is empty"):
        shelf.rename(first.id, ANNA, " \n ")
    assert shelf.rename(first.id, ANNA, "otters").name == "otters"
    again = Shelf(Pipeline(config))
    assert [corpus.name for corpus in again.corpora(ANNA)] == ["Demo corpus", "<b>Sea</b> otters", "otters"]
    assert again.pipeline(second.id, ANNA).search(["otters"], "cosine", 1)[0].hits[0].passage.text == OTTERS
    shelf.delete(first.id, ANNA)
    assert [corpus.id for corpus in shelf.corpora(ANNA)] == ["", second.id]
    assert not list((tmp_path / "data/corpora").rglob(f"*{first.id}*")) + list((tmp_path / "data").rglob(f"{DELETED}*"))
    with pytest.raises(ConfigError, match="is not there"):
        shelf.pipeline(first.id, ANNA)


class _Enough(Exception):
    pass


@pytest.mark.parametrize("stage", ["reading", "encoding"])
def test_nothing_is_left_of_a_build_that_was_stopped(
    shelf: Shelf, files: list[Path], tmp_path: Path, stage: str
) -> None:
    def stop(step: Step) -> None:
        if step.stage == stage and (stage == "reading" or step.done):
            raise _Enough

    with pytest.raises(_Enough):
        shelf.add(ANNA, "Mine", files, step=stop)
    assert [path for path in (tmp_path / "data/corpora").glob("*/*")] == []
    assert [corpus.id for corpus in shelf.corpora(ANNA)] == [""]
    assert len(shelf.add(ANNA, "Mine", files).corpus.id) == 16


def test_what_a_killed_page_left_is_never_searched_and_cleared_at_the_next_start(
    config: Config, files: list[Path], tmp_path: Path
) -> None:
    settings = [f'data_dir="{config.data_dir}"', *untrained(Path(config.encoders["minilm"].model))]
    script = (
        "import os, signal, sys; from pathlib import Path; from rag_app.config import load_config\n"
        "from rag_app.pipeline import Pipeline; from rag_app.shelf import Shelf\n"
        "def kill(step):\n"
        "    if step.stage == 'encoding' and step.done: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"config = load_config(None, {settings!r}, {{}})\n"
        f"Shelf(Pipeline(config)).add('{ANNA}', 'Mine', [Path(sys.argv[1])], step=kill)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(files[0])], env=os.environ, capture_output=True)
    assert done.returncode == -9, done.stderr
    corpora = tmp_path / "data/corpora"
    half = list(corpora.glob(f"*/{UNFINISHED}*"))
    assert len(half) == 1 and list(half[0].rglob("shard*")) + list(half[0].rglob("build.json"))
    shelf = Shelf(Pipeline(config))
    assert list(corpora.glob("*/*")) == []
    assert [corpus.id for corpus in shelf.corpora(ANNA)] == [""]


def test_a_second_page_leaves_what_the_first_is_making_alone(shelf: Shelf, config: Config, files: list[Path]) -> None:
    started, go_on = threading.Event(), threading.Event()
    added: list[str] = []

    def wait(step: Step) -> None:
        started.set()
        assert go_on.wait(60)

    thread = threading.Thread(target=lambda: added.append(shelf.add(ANNA, "Mine", files, step=wait).corpus.id))
    thread.start()
    assert started.wait(60)
    second = Shelf(Pipeline(config))
    assert [corpus.id for corpus in second.corpora(ANNA)] == [""]
    go_on.set()
    thread.join(60)
    assert [corpus.id for corpus in second.corpora(ANNA)] == ["", *added]


def test_too_much_is_refused_in_words_and_leaves_nothing(config: Config, files: list[Path], tmp_path: Path) -> None:
    small = config.overridden(["page.max_upload_mb=1", "page.max_passages=3", "page.max_corpora=1"])
    shelf = Shelf(Pipeline(small))
    large = tmp_path / "large.txt"
    large.write_text("word " * 300_000)
    with pytest.raises(ConfigError, match=r"1\.5 MB together, more than the 1 MB"):
        shelf.add(ANNA, "", [large])
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": n, "text": f"Passage {n}."}) + "\n" for n in range(4)))
    with pytest.raises(ConfigError, match="more than the 3 passages"):
        shelf.add(ANNA, "", [rows])
    with pytest.raises(ConfigError, match="no files yet"):
        shelf.add(ANNA, "", [])
    with pytest.raises(ConfigError, match=r"virus\.exe cannot be read: bring \.txt"):
        shelf.add(ANNA, "", [tmp_path / "virus.exe"])
    assert list((tmp_path / "data/corpora").glob("*/*")) == []
    shelf.add(ANNA, "", files)
    with pytest.raises(ConfigError, match="you have 1 corpora"):
        shelf.add(ANNA, "", files)
    shelf.add(BEN, "", files)


def test_a_table_with_columns_of_its_own_names(shelf: Shelf, tmp_path: Path) -> None:
    table = tmp_path / "animals.csv"
    table.write_text(f'Animal,What it does,Weight\notter,"{OTTERS}",30\nlion,Lions sleep in the sun.,190\nbad\n')
    columns = {"id": NO_COLUMN, "title": "Animal", "text": "What it does"}
    added = shelf.add(ANNA, "", [table], columns=columns)
    assert added.corpus.passages == 2
    assert added.faults == ("animals.csv:4: the header has 3 columns, the line 1 (or a quote is not closed)",)
    hit = shelf.pipeline(added.corpus.id, ANNA).search(["holding hands"], "cosine", 1)[0].hits[0]
    assert (hit.passage.id, hit.passage.title, hit.passage.text) == ("2", "otter", OTTERS)
    assert hit.passage.meta == {"Weight": "30"}


def test_a_preview_shows_the_chunks_that_will_be_indexed(shelf: Shelf, tmp_path: Path) -> None:
    text = " ".join(f"Sentence number {n} is about otters and trains." for n in range(60))
    file = tmp_path / "long.txt"
    file.write_text(text)
    seen = shelf.preview(file, Chunking(40, 10), {})
    added = shelf.add(ANNA, "", [file], chunking=Chunking(40, 10))
    rows = [json.loads(line) for line in next((tmp_path / "data/corpora").glob("*/*/passages.jsonl")).open()]
    assert seen.total == added.corpus.passages == len(rows) > 5
    assert [chunk.passage.text for chunk in seen.chunks] == [row["text"] for row in rows[:5]]
    tokenizer = shelf.pipeline("", "").stores.encoder("minilm").tokenizer
    for chunk in seen.chunks:
        assert chunk.tokens == len(tokenizer.tokenize(chunk.passage.text)) <= 40
    assert shelf.longest() == 254  # MiniLM reads 256 tokens, two of them special


def test_meta_that_is_damaged_hides_a_corpus_and_no_other(shelf: Shelf, files: list[Path], tmp_path: Path) -> None:
    first, second = (shelf.add(ANNA, "", files).corpus.id for _ in range(2))
    next((tmp_path / "data/corpora").glob(f"*/{first}/{META}")).write_text("{")
    assert [corpus.id for corpus in shelf.corpora(ANNA)] == ["", second]
