"""What an evaluation is asked over: the data sets that [eval.datasets] or the command line names, and their corpora."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from eval.data.sources import DataSet, PairSet, load_dataset
from eval.data.specs import DataSetSpec, resolve_spec
from eval.errors import UsageError
from eval.ranking import parse_measures
from rag_app.config import Config
from rag_app.config_tables import DataSetConfig
from rag_app.demo import QUESTIONS


@dataclass(frozen=True, slots=True)
class Experiment:
    """Data sets, ready to be asked.

    Attributes:
        datasets: Questions and retrieval sets.
        pairs: Sets of sentence pairs.
        corpora: The corpus, and the index's folder or "", by data set; pairs have none.
    """

    datasets: list[DataSet] = field(default_factory=list)
    pairs: list[PairSet] = field(default_factory=list)
    corpora: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Of all of them."""
        return [*(dataset.name for dataset in self.datasets), *(pairs.name for pairs in self.pairs)]


def question_sets(config: Config) -> dict[str, DataSetConfig]:
    """The tables of [eval.datasets] whose files are named, and the demo's own questions where the corpus is the demo's.

    Those of the hub are left out: the page fetches nothing because a visitor clicks.
    """
    sets = {name: table for name, table in config.eval.datasets.items() if table.path}
    if config.is_demo:
        sets.setdefault("demo", DataSetConfig(path=str(QUESTIONS.resolve())))
    return sets


def open_experiment(
    config: Config, named: Sequence[str], say: Callable[[str], None], *, own_corpus: bool = False
) -> Experiment:
    """Read the data sets of an evaluation and draw their questions.

    Args:
        config: [eval] says how many questions are drawn, and which sets where none is named.
        named: Tables of [eval.datasets], registry names, files, folders or name=path, as the command line gives them;
            what has no table is asked over the corpus that comes with it, else over the configuration's.
        say: Told, in a line, of each set and how many of its questions are asked.
        own_corpus: The configuration's corpus or index is what the person asked for, and wins over the sets' own.

    Raises:
        UsageError: There is nothing to ask, or a name that cannot be used.
        EvalError: A set that cannot be read, is not what it should be, or needs the hub where there is none.
    """
    settings = config.eval
    parse_measures(settings.measures)  # a misspelt one should not have to wait for the hub
    root = Path(settings.data).expanduser()
    if named:
        specs = [_named(name, config, root) for name in named]
    else:
        specs = [(dataset_spec(name, table, root, settings.rule), table) for name, table in settings.datasets.items()]
    if not specs:
        raise UsageError(
            "there is nothing to evaluate: name a data set (nq, a file of questions, a BEIR folder) or a configuration "
            "with [eval.datasets], such as configs/experiments/demo.toml"
        )
    experiment = Experiment()
    for spec, table in specs:
        if not re.fullmatch(r"\w[\w.+-]*", spec.name):
            raise UsageError(
                f"a data set's name may hold letters, digits, and . _ + - only, since files are called by it; got {spec.name!r}"
            )
        if spec.name in experiment.corpora or any(spec.name == pairs.name for pairs in experiment.pairs):
            raise UsageError(f"data set {spec.name!r} is named twice; give one of them another name (NAME=PATH)")
        locked = config.resolved_data_dir() / "datasets"
        loaded = load_dataset(spec, n=settings.n or None, seed=settings.seed, say=say, locks=locked)
        if isinstance(loaded, PairSet):
            experiment.pairs.append(loaded)
            continue
        experiment.datasets.append(loaded if settings.read else replace(loaded, task="retrieval"))
        own = config.corpus, config.index.path
        experiment.corpora[spec.name] = own if own_corpus else _corpus(config, table, root, loaded)
    return _with_unique_ids(experiment, say)


def _with_unique_ids(experiment: Experiment, say: Callable[[str], None]) -> Experiment:
    """Rows of a run are found by their question's id: where data sets share ids (test_0, ...) their names go before them."""
    ids = [question.id for dataset in experiment.datasets for question in dataset.questions]
    if len(set(ids)) == len(ids):
        return experiment
    say("data sets share question ids; in this run NAME: stands before each")
    named = [replace(own, questions=[question.renamed() for question in own.questions]) for own in experiment.datasets]
    return replace(experiment, datasets=named)


def _named(name: str, config: Config, root: Path) -> tuple[DataSetSpec, DataSetConfig]:
    rule, table = config.eval.rule, config.eval.datasets.get(name)
    if table is not None:
        return dataset_spec(name, table, root, rule), table
    return replace(resolve_spec(name), rule=rule), DataSetConfig()


def dataset_spec(name: str, table: DataSetConfig, root: Path, rule: str) -> DataSetSpec:
    """What a table of [eval.datasets] asks for; `rule` wins over its own."""
    return DataSetSpec(
        name=name,
        path=str(root / table.path) if table.path else "",
        hub=table.hub,
        subset=table.subset,
        split=table.split,
        format=table.format,
        columns=table.columns,
        rule=rule or table.rule,
        lang=table.lang,
        sha256=table.sha256,
        count=table.count or None,
    )


def _corpus(config: Config, table: DataSetConfig, root: Path, loaded: DataSet) -> tuple[str, str]:
    """The corpus and the index's folder: the table's own, else the set's own, else the configuration's."""
    if table.index:
        return config.corpus, str(root / table.index)
    if table.corpus:
        return (table.corpus if table.corpus.startswith("hub:") else str(root / table.corpus)), ""
    if config.index.path or not loaded.corpus:
        return config.corpus, config.index.path
    return loaded.corpus, ""
