"""The retrieval side of a configuration: encoders, indexes and retrievers, each loaded once, when first asked for.

Safe to share between threads; who asks for what is there already does not wait for what is being built.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from generator.quiet import quiet_transformers
from rag_app.adapters import check_base, find_adapter
from rag_app.config import Config
from rag_app.config_tables import EncoderConfig, IndexConfig, RetrieverConfig
from rag_app.errors import ConfigError
from rag_app.once import Once
from rag_app.progress import Log, StepProgress
from rag_app.weight_hashes import model_hash
from rag_app.weights import resolve
from retriever.base import IndexedRetriever
from retriever.build import build_index
from retriever.chunking import Chunking
from retriever.corpora import Corpus, read_corpus
from retriever.dense import DenseRetriever
from retriever.encoder import Encoder, EncoderSpec, spec_from_preset
from retriever.fusion import HybridRetriever
from retriever.index import MANIFEST, Index
from retriever.iterative import IterativeRetriever
from retriever.lexical import BM25Retriever, BM25Settings
from retriever.loading import load_encoder
from retriever.rerank import Reranker, RerankRetriever, load_reranker
from retriever.runfile import RunFileRetriever
from retriever.search.base import Searcher
from retriever.search.exact import ExactSearcher
from retriever.search.faiss import FaissSearcher
from retriever.similarity import Similarity, similarity_from_name
from retriever.training.checkpoint import MERGED, CheckpointManifest, read_manifest


class Stores:
    """What a pipeline retrieves with.

    Args:
        config: Which encoders, indexes and retrievers there are.
        log: Told, in a line, of each long step before it starts.
        progress: Told of (what, done, total) during long steps.
        encoders: Those that are loaded already, and where others are put; to be shared by stores of several corpora.
        home: The folder that indexes are kept in; one in the data folder where None.
    """

    def __init__(
        self,
        config: Config,
        log: Log,
        progress: StepProgress | None = None,
        encoders: dict[str, Encoder] | None = None,
        home: Path | None = None,
    ) -> None:
        self.config = config
        self._log = log
        self._progress = progress
        self._home = home or config.resolved_data_dir() / "indexes"
        self.encoders: dict[str, Encoder] = {} if encoders is None else encoders
        # Of models, one at a time: nobody has shown that transformers loads two at once safely. Building an index takes far longer.
        self._loading = threading.Lock()
        self._rerankers: dict[tuple[str, int | None, str | None], Reranker] = {}
        self._indexes: Once[str, Index] = Once()
        self._searchers: Once[tuple[str, str], Searcher] = Once()
        self._retrievers: Once[str, IndexedRetriever] = Once()

    def over(self, corpus: Path, home: Path, progress: StepProgress | None = None) -> Stores:
        """Stores of another corpus, whose indexes lie in `home`; encoders and cross-encoders are the same ones in both.

        Args:
            corpus: JSONL of {id, title, text}.
            home: A folder, which may not exist yet.
            progress: As for the class.
        """
        config = self.config.over(str(corpus), "")
        # What the configuration says of its own corpus's columns and faults does not hold for this one.
        plain = IndexConfig(storage=config.index.storage, shard_size=config.index.shard_size)
        made = Stores(config.model_copy(update={"index": plain}), self._log, progress, self.encoders, home)
        made._rerankers, made._loading = self._rerankers, self._loading
        return made

    def retriever(self, name: str) -> IndexedRetriever:
        """The retriever of that name; its index is built when there is none yet."""
        settings = self.config.retriever(name)
        return self._retrievers.get(name, lambda: self._load_retriever(name, settings))

    def encoder(self, name: str) -> Encoder:
        """The encoder of that name."""
        if name in self.encoders:
            return self.encoders[name]
        with self._loading:
            if name not in self.encoders:
                self.encoders[name] = load_configured_encoder(name, self.config, self._log)
            return self.encoders[name]

    def index(self, encoder_name: str) -> Index:
        """The configuration's corpus as that encoder sees it.

        With index.path the index must be there already, in that folder or in one of the encoder's name inside it; without,
        it is kept in the data folder and built when missing.
        """
        kept = self._given_index if self.config.index.path else self._cached_index
        return self._indexes.get(encoder_name, lambda: kept(encoder_name))

    @property
    def passages(self) -> int:
        """How many there are; 0 before the first index is open."""
        return next((len(index) for index in self._indexes.values()), 0)

    def _load_retriever(self, name: str, settings: RetrieverConfig) -> IndexedRetriever:
        parts = [self.retriever(part) for part in settings.of or ()]
        if settings.kind == "hybrid":
            return HybridRetriever(name, parts, **_given(depth=settings.depth, rrf_k=settings.rrf_k))
        if settings.kind == "rerank":
            reading = _given(depth=settings.depth, batch_size=settings.batch_size)
            return RerankRetriever(name, parts[0], self._reranker(name, settings), **reading)
        if settings.kind == "iterative":
            return IterativeRetriever(name, parts[0], **_given(rounds=settings.rounds, width=settings.width))
        index = self.index(settings.encoder)
        if settings.kind == "trec_run":
            return RunFileRetriever(name, index, str(settings.path))
        if settings.kind == "bm25":
            return BM25Retriever(name, index, BM25Settings(settings.k1, settings.b, settings.stemmer))
        encoder = self.encoder(settings.encoder)
        similarity = configured_similarity(name, settings, encoder)
        return DenseRetriever(name, encoder, similarity, index, self._searcher(settings.searcher, settings.encoder))

    def _reranker(self, name: str, settings: RetrieverConfig) -> Reranker:
        """One for all retrievers that use it alike."""
        model, data_dir = str(settings.model), self.config.resolved_data_dir()
        key = (model, settings.max_tokens, settings.device)
        with self._loading:
            if key not in self._rerankers:
                folder = resolve(model, data_dir=data_dir, log=self._log, setting=f"retrievers.{name}.model")
                self._log(f"loading cross-encoder {model}")
                with quiet_transformers():
                    self._rerankers[key] = load_reranker(
                        folder,
                        name=model,
                        weights_hash=model_hash(folder, data_dir=data_dir),
                        **_given(max_tokens=settings.max_tokens, device=settings.device),
                    )
            return self._rerankers[key]

    def _searcher(self, kind: str, encoder_name: str) -> Searcher:
        """One for all similarities, since FAISS keeps vectors in memory."""
        index, device = self.index(encoder_name), self.config.encoders[encoder_name].device
        return self._searchers.get(
            (kind, encoder_name), lambda: FaissSearcher(index) if kind == "faiss" else ExactSearcher(index, device)
        )

    def _given_index(self, encoder_name: str) -> Index:
        folder = Path(self.config.index.path).expanduser()
        own, others = folder / encoder_name, indexes_in(folder)
        if others and not own.is_dir():
            raise ConfigError(
                f"{folder} has no index of encoder {encoder_name} (of {', '.join(others)}); "
                f"`magrag index CORPUS {folder} --encoder {encoder_name}` adds it"
            )
        return Index(own if own.is_dir() else folder)

    def _cached_index(self, encoder_name: str) -> Index:
        encoder = self.encoder(encoder_name)
        corpus = open_corpus(self.config, encoder)
        settings = self.config.index
        key = json.dumps([corpus.fingerprint(), encoder.fingerprint, settings.storage, settings.shard_size])
        label = re.sub(r"\W+", "-", Path(self.config.corpus).stem) or "corpus"
        name = f"{label}-{encoder_name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        folder = self._home / name
        if not (folder / "manifest.json").is_file():
            self._log(f"encoding {self.config.corpus} with {encoder.name} into {folder}, which BM25 ranks too")
        return build_configured_index(corpus, encoder, folder, self.config, self._progress)


def _given(**settings: Any) -> dict[str, Any]:
    """Those that are set; a retriever's own defaults stand for the others."""
    return {key: value for key, value in settings.items() if value is not None}


def indexes_in(folder: Path) -> list[str]:
    """Names of the encoders that have an index each inside this folder; [] where it is an index itself, or not there."""
    if (folder / MANIFEST).is_file():
        return []
    return sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}"))


def load_configured_encoder(name: str, config: Config, log: Log, *, table: str = "") -> Encoder:
    """The encoder that table [encoders.NAME] describes.

    Args:
        name: Of the table.
        config: Has it.
        log: Told, in a line, what is loaded.
        table: What errors call it, where people write it elsewhere.

    Raises:
        ConfigError: No such table.
        WeightsError: Its weights cannot be had.
        RetrieverError: They cannot be loaded as the table says.
    """
    settings: EncoderConfig = config.encoder(name)
    table = table or f"encoders.{name}"
    data_dir = config.resolved_data_dir()
    folder = resolve(settings.model, data_dir=data_dir, log=log, setting=f"{table}.model")
    fingerprint = model_hash(folder, data_dir=data_dir)
    if (folder / "adapter_config.json").is_file():
        raise ConfigError(
            f"{table}.model = {settings.model!r} is an adapter: name the model it was trained on there, and the "
            f"adapter as {table}.adapter"
        )
    adapter, called = None, settings.model
    if settings.adapter:
        setting = f"{table}.adapter"
        adapter = find_adapter(settings.adapter, setting)
        check_base(adapter, folder, settings.model, setting, data_dir)
        fingerprint = f"{fingerprint}+{model_hash(adapter)}"
        called = f"{settings.model} with adapter {settings.adapter}"
    manifest = _manifest(adapter or folder)
    log(f"loading encoder {called}")
    with quiet_transformers():
        encoder = load_encoder(
            folder,
            _spec(settings, manifest),
            name=called,
            weights_hash=fingerprint,
            adapter=adapter,
            device=settings.device,
            tokens_per_batch=settings.tokens_per_batch,
            trust_remote_code=settings.trust_remote_code,
        )
    if manifest is not None and encoder.spec.trained_for == manifest.similarity:
        encoder.trained = Similarity(manifest.similarity, manifest.gamma_q, manifest.gamma_d)
    return encoder


def configured_similarity(name: str, settings: RetrieverConfig, encoder: Encoder) -> Similarity:
    """What the table [retrievers.NAME] ranks by; "learnable" without gammas is what the encoder was trained to.

    Raises:
        ConfigError: It was not trained to any.
    """
    if settings.similarity == "learnable" and settings.gamma_q is None:
        if encoder.trained is None or encoder.trained.name != "learnable":
            raise ConfigError(
                f'retrievers.{name}.gamma_q is missing: similarity "learnable" needs both gammas, since {encoder.name} does '
                "not say that it was trained to any"
            )
        return encoder.trained
    return similarity_from_name(settings.similarity, settings.gamma_q, settings.gamma_d)


def _manifest(folder: Path) -> CheckpointManifest | None:
    """Of a checkpoint or an adapter; the merged model in an adapter's folder is described beside it."""
    return read_manifest(folder) or (read_manifest(folder.parent) if folder.name == MERGED else None)


def _spec(settings: EncoderConfig, manifest: CheckpointManifest | None) -> EncoderSpec:
    """What the table says, over its preset; a checkpoint of ours stands in for a preset that nobody named."""
    spec = spec_from_preset(settings.preset)
    if manifest is not None:
        if settings.preset == EncoderConfig.model_fields["preset"].default:
            spec = EncoderSpec(**manifest.encoder)
        spec = replace(spec, trained_for=manifest.similarity)
    own = {key: getattr(settings, key) for key in EncoderSpec.__dataclass_fields__}
    return replace(spec, **_given(**own))


def open_corpus(config: Config, encoder: Encoder | None) -> Corpus:
    """The corpus the configuration names; documents are cut by the encoder's own tokenizer (None: by words)."""
    from rag_app.demo import PASSAGES

    source = PASSAGES if config.corpus == "demo" else config.corpus
    return read_corpus(
        source,
        on_error=config.index.on_error,
        collapse_duplicates=config.index.collapse_duplicates,
        chunking=Chunking(config.chunking.max_tokens, config.chunking.overlap),
        columns={role: name for role, name in config.index.columns.model_dump().items() if name},
        tokenizer=None if encoder is None else encoder.tokenizer,
    )


def build_configured_index(
    corpus: Corpus, encoder: Encoder, folder: Path, config: Config, progress: StepProgress | None
) -> Index:
    """Build, continue or open the index of a corpus at `folder` with the configuration's storage settings."""
    return build_index(
        corpus,
        encoder,
        folder,
        storage=config.index.storage,
        shard_size=config.index.shard_size,
        progress=None if progress is None else lambda done, _: progress("passages", done, corpus.estimated_total()),
    )
