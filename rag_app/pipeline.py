"""Questions to answers: the parts of a configuration, loaded when first needed and put together.

from rag_app import Pipeline
Pipeline.from_config("configs/demo.toml").answer(["Who built the Eiffel Tower?"])
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from collections.abc import Generator as Stream
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from generator.base import Completion, Generator, Prompt, Sampling
from generator.errors import GeneratorError
from rag_app.answers import Answer
from rag_app.config import Config, load_config
from rag_app.config_tables import CLOSED_BOOK
from rag_app.prompt import BuiltPrompt, build_prompt, extract_answer, stop_strings

if TYPE_CHECKING:
    from rag_app.stages import StageCache
    from rag_app.stores import Stores
    from retriever.base import Hit, IndexedRetriever
    from retriever.encoder import Encoder
    from retriever.index import Index


class Pipeline:
    """A configuration at work. Safe to share between threads.

    Args:
        config: What to load.
        log: Told, in a line, of each long step before it starts.
        progress: Told of (what, done, total) during long steps.
        stores: What it retrieves with, where that is shared; its own otherwise.
        generator: Gives the reader, where that is shared and closed by others; its own otherwise.
        stages: Rankings and answers of before, to be used again; computed anew where None.
    """

    def __init__(
        self,
        config: Config,
        *,
        log: Callable[[str], None] | None = None,
        progress: Callable[[str, int, int | None], None] | None = None,
        stores: Stores | None = None,
        generator: Callable[[], Generator] | None = None,
        stages: StageCache | None = None,
    ) -> None:
        self.config = config
        self.log = log or (lambda line: None)
        self.progress = progress
        self._lock = threading.Lock()
        self._reader_lock = threading.Lock()
        self._stores = stores
        self._shared_generator = generator
        self._generator: Generator | None = None
        self._stages = stages

    @classmethod
    def from_config(cls, path: str | Path | None = None, overrides: Sequence[str] = ()) -> Pipeline:
        """A pipeline from a TOML file (the demo where none is named) and `key=value` overrides.

        Raises:
            ConfigError: A key or value that does not fit.
        """
        return cls(load_config(path, overrides))

    def retriever(self, name: str) -> IndexedRetriever:
        """The retriever of that name, its index built if need be.

        Raises:
            ConfigError: No retriever of that name.
            RetrieverError: Its corpus, index or encoder cannot be used.
        """
        return self.stores.retriever(name)

    @property
    def stores(self) -> Stores:
        """What it retrieves with, made on first use."""
        with self._lock:
            if self._stores is None:
                from rag_app.stores import Stores

                self._stores = Stores(self.config, self.log, self.progress)
            return self._stores

    def index(self, encoder: str) -> Index:
        """The corpus as the encoder of that name sees it, built if need be.

        Raises:
            RetrieverError: Corpus, index or encoder cannot be used.
        """
        return self.stores.index(encoder)

    def encoder(self, name: str) -> Encoder:
        """The encoder of that name.

        Raises:
            ConfigError: There is none of that name.
        """
        return self.stores.encoder(name)

    def notes(self, name: str) -> list[str]:
        """What a person should know before reading anything into that retriever's ranking."""
        return [] if name == CLOSED_BOOK else self.retriever(name).notes

    @property
    def generator(self) -> Generator:
        """The reader, made on first use; `start` loads it.

        Raises:
            WeightsError: Its weights cannot be had.
            GeneratorError: It cannot be used here.
        """
        if self._shared_generator is not None:
            return self._shared_generator()
        with self._reader_lock:
            if self._generator is None:
                from rag_app.reader import load_reader

                self._generator = load_reader(self.config, self.log)
            return self._generator

    @property
    def sampling(self) -> Sampling:
        """How answers are decoded."""
        decoding = self.config.decoding
        return Sampling(
            max_tokens=decoding.max_tokens,
            temperature=decoding.temperature,
            seed=decoding.seed,
            stop=stop_strings(self.config.prompt.style),
        )

    def search(self, questions: Sequence[str], retriever: str, k: int | None = None) -> list[Answer]:
        """Retrieve only: Answers whose `answer` is empty. k is the retriever's own where not given."""
        if retriever == CLOSED_BOOK:
            return [Answer(CLOSED_BOOK) for _ in questions]
        ranker, k = self.retriever(retriever), k or self.config.retriever(retriever).k
        found = self._stages.retrieve(ranker, questions, k) if self._stages else ranker.retrieve(questions, k)
        share = {stage: seconds / max(1, len(questions)) for stage, seconds in found.seconds.items()}
        return [Answer(retriever, hits=hits, timings=dict(share)) for hits in found.hits]

    def answer(self, questions: Sequence[str], retriever: str | None = None, k: int | None = None) -> list[Answer]:
        """Answer a batch with one retriever (the configuration's first page retriever where not named).

        A question whose prompt cannot be made or answered has `error` set; the others are not disturbed.
        """
        name = retriever or self.config.page.retrievers[0]
        found = self.search(questions, name, k)
        return self.read(questions, found)

    def compare(self, question: str, retrievers: Sequence[str], k: int | None = None) -> list[Answer]:
        """The same question to several retrievers, one after the other, each timed alone."""
        return [self.answer([question], name, k)[0] for name in retrievers]

    def stream(self, question: str, found: Answer) -> Stream[Answer, None, None]:
        """Read what `search` found, yielding the answer as it grows; the last one has all timings."""
        generator = self.generator
        generator.start()  # before the clock is
        started = time.perf_counter()
        try:
            built = self._prompt("stream", question, found.hits)
        except GeneratorError as error:
            yield replace(found, error=str(error))
            return
        base = _with_prompt(found, built, time.perf_counter() - started)
        text = ""
        generating = time.perf_counter()
        timings = dict(base.timings)
        yield base
        try:
            for piece in generator.stream(built.prompt, self.sampling):
                timings.setdefault("first_token", time.perf_counter() - generating)
                text += piece
                yield replace(base, answer=extract_answer(text), timings=dict(timings))
        except GeneratorError as error:
            yield replace(base, error=str(error))
            return
        timings["generate"] = time.perf_counter() - generating
        yield replace(base, answer=extract_answer(text), timings=timings)

    def close(self) -> None:
        """Free the reader."""
        with self._reader_lock:
            if self._generator is not None:
                self._generator.close()
                self._generator = None

    def _prompt(self, id: str, question: str, hits: Sequence[Hit]) -> BuiltPrompt:
        passages = [hit.passage for hit in hits]
        reserve = self.config.decoding.max_tokens
        return build_prompt(id, question, passages, self.generator, self.config.prompt, reserve)

    def read(
        self, questions: Sequence[str], found: Sequence[Answer], k: int | None = None, *, fresh: bool = False
    ) -> list[Answer]:
        """Have the reader answer what `search` found.

        Args:
            questions: As they were searched.
            found: Their passages.
            k: How many passages are offered to the reader; all where None.
            fresh: Ask the reader even for what it answered before.
        """
        generator = self.generator
        started = time.perf_counter()
        answers = list(found)
        built: dict[str, tuple[int, BuiltPrompt]] = {}
        for number, (question, answer) in enumerate(zip(questions, found, strict=True)):
            try:
                built[str(number)] = (number, self._prompt(str(number), question, answer.hits[:k]))
            except GeneratorError as error:
                answers[number] = replace(answer, error=str(error))
        prompting = (time.perf_counter() - started) / max(1, len(questions))
        prompts = [prompt.prompt for _, prompt in built.values()]
        completions, seconds = self._complete(generator, prompts, fresh)
        for completion in completions:
            number, prompt = built[completion.id]
            base = _with_prompt(found[number], prompt, prompting)
            answers[number] = _completed(base, completion, seconds.get(completion.id))
        return answers

    def _complete(
        self, generator: Generator, prompts: Sequence[Prompt], fresh: bool
    ) -> tuple[Sequence[Completion], dict[str, float]]:
        """Completions, and each one's share of the seconds that the reader took; none for those known from before."""
        if self._stages is not None and generator.weights_known and not fresh:
            return self._stages.complete(generator, prompts, self.sampling)
        if not prompts:
            return [], {}
        generator.start()  # before the clock is
        started = time.perf_counter()
        completions = generator.generate(prompts, self.sampling)
        share = (time.perf_counter() - started) / len(prompts)
        return completions, {prompt.id: share for prompt in prompts}


def _with_prompt(found: Answer, built: BuiltPrompt, seconds: float) -> Answer:
    return replace(
        found,
        dropped=built.dropped,
        cut=built.cut,
        prompt_tokens=built.tokens,
        prompt=built.prompt.text or "\n\n".join(f"{m['role']}: {m['content']}" for m in built.prompt.messages or ()),
        timings=found.timings | {"prompt": seconds},
    )


def _completed(base: Answer, completion: Completion, seconds: float | None) -> Answer:
    return replace(
        base,
        answer=extract_answer(completion.text),
        error=completion.error,
        timings=base.timings | ({"generate": seconds} if seconds is not None else {}),
    )
