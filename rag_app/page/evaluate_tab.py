"""The tab that evaluates: begin, pause and resume a run, see its figures, open what flips, compare with earlier runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from eval.compare import compare_runs
from eval.flips import count_flips, flips
from eval.runs import RunSummary, runs_json
from eval.view import RunView
from rag_app.config_tables import CLOSED_BOOK
from rag_app.errors import USER_ERRORS, ConfigError
from rag_app.experiment import question_sets
from rag_app.page.api import told_in_a_line
from rag_app.page.compare_tab import CompareParts
from rag_app.page.evaluate_view import render_comparison, render_flips, render_run, render_runs, render_status
from rag_app.page.evaluation import Desk, Plan, Status, in_order
from rag_app.page.library import Library
from rag_app.page.opening import open_question, why_closed
from rag_app.page.place import place
from rag_app.page.render import render_message
from rag_app.page.room import Room, owner_of

POLL_S = 0.5
QUESTIONS = 40
"""So many are asked unless a person says otherwise: enough to see how it goes, in a minute or two on two cores."""

NO_RUN = ""
# A button in the list of flips is a click of the list that says which question it was.
_BUTTONS = (
    "element.addEventListener('click', (event) => {"
    "const button = event.target.closest('[data-question]');"
    "if (button) trigger('click', {question: button.dataset.question}); });"
)

Update = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class Controls:
    """What a run is begun with, and how it is told of."""

    dataset: gr.Dropdown
    n: gr.Number
    seed: gr.Number
    retrievers: gr.CheckboxGroup
    read: gr.Checkbox
    run: gr.Button
    pause: gr.Button
    resume: gr.Button
    status: gr.HTML

    def buttons(self) -> list[Any]:
        """What changes while something runs."""
        return [self.run, self.pause, self.resume, self.status]


@dataclass(frozen=True, slots=True)
class RunParts:
    """The runs, and the one that is looked at."""

    shown: gr.Dropdown
    against: gr.Dropdown
    figures: gr.HTML
    flipped: gr.Group
    flip_a: gr.Dropdown
    flip_b: gr.Dropdown
    flips: gr.HTML
    runs: gr.HTML

    def all(self) -> list[Any]:
        """Every component, as an event lists its outputs."""
        return [getattr(self, name) for name in self.__slots__]


def lay_out_evaluate(room: Room, parts: CompareParts, tabs: gr.Tabs) -> None:
    """The tab with its events; what is shared by visitors is the desk, where one run goes on, and the runs on disk."""
    desk = Desk(room.pipeline)
    library = Library(desk.folder)
    askable = bool(question_sets(room.config))
    with gr.Tab("Evaluate", id="evaluate") as tab:
        controls = _controls(room)
        looked_at = _run_parts()

    def stand(status: Status, owner: str, runs: list[RunSummary], shown: str) -> Update:
        own = status.owner == owner
        wanted = shown or status.run
        resumable = any(run.path.name == wanted and not run.finished and run.damage is None for run in runs)
        # One that was paused before its folder was there is in no list.
        resumable |= wanted == status.run and status.state in ("paused", "failed")
        return {
            controls.run: gr.Button("Running …" if status.busy else "Run", interactive=askable and not status.busy),
            controls.pause: gr.Button(interactive=status.state == "running" and own),
            controls.resume: gr.Button(interactive=not status.busy and resumable),
            controls.status: render_status(status, desk.folder, own=own),
        }

    async def follow(browser: str, shown: str, request: gr.Request) -> AsyncIterator[Update]:
        """The running evaluation, until it ends; asleep it takes no thread, so that many may follow."""
        owner, runs = _owner(request, browser), await asyncio.to_thread(library.runs)
        before = None
        while True:
            status = desk.status
            if before is not None and not status.busy:
                runs = await asyncio.to_thread(library.runs)
            if status != before:
                yield stand(status, owner, runs, shown)
            if not status.busy:
                return
            before = status
            await asyncio.sleep(POLL_S)

    async def begin(
        dataset: str, n: float, seed: float, retrievers: list[str], read: bool, browser: str, request: gr.Request
    ) -> AsyncIterator[Update]:
        try:
            questions = whole_field(n, "Questions", f"{QUESTIONS}, or 0 for all")
            names = in_order(retrievers, room.config)
            plan = Plan(dataset, names, questions, whole_field(seed, "Seed", "0"), read)
            desk.start(plan, _owner(request, browser))
        except USER_ERRORS as error:
            yield {controls.status: render_message(str(error))}
            return
        yield {
            looked_at.shown: NO_RUN,
            looked_at.figures: "",
            looked_at.flipped: gr.Group(visible=False),
        }
        async for update in follow(browser, NO_RUN, request):
            yield update

    async def resume(shown: str, browser: str, request: gr.Request) -> AsyncIterator[Update]:
        try:
            status = desk.status
            name = shown or status.run
            if status.plan is not None and name == status.run:
                plan = status.plan
            else:
                plan = Plan.of_run((await asyncio.to_thread(library.open, name))[0].manifest)
            desk.start(plan, _owner(request, browser), name)
        except USER_ERRORS as error:
            yield {controls.status: render_message(str(error))}
            return
        async for update in follow(browser, name, request):
            yield update

    def pause(browser: str, request: gr.Request) -> None:
        try:
            desk.pause(_owner(request, browser))
        except ConfigError as error:
            raise gr.Error(str(error), print_exception=False) from error

    def ended(browser: str, request: gr.Request) -> Any:
        """Show what one's own run came to."""
        status = desk.status
        mine = status.owner == _owner(request, browser) and not status.busy
        return refresh(status.run) if mine else gr.skip()

    def refresh(shown: str, against: str = NO_RUN) -> Update:
        runs = library.runs()
        names = [run.path.name for run in runs]
        if shown not in names:
            shown = NO_RUN
        choices = [("none", NO_RUN), *names]
        return {
            looked_at.shown: gr.Dropdown(choices, value=shown),
            looked_at.against: gr.Dropdown(choices, value=against if against in names else NO_RUN),
            looked_at.runs: render_runs(runs, desk.folder),
            **(look(shown, against) if shown else {}),
        }

    def look(shown: str, against: str = NO_RUN) -> Update:
        """A run's figures and flips, or two runs side by side."""
        if not shown:
            return {looked_at.figures: "", looked_at.flipped: gr.Group(visible=False)}
        try:
            view, metrics = library.open(shown)
            if against:
                compared = render_comparison(compare_runs(view, library.open(against)[0]))
                return {looked_at.figures: compared, looked_at.flipped: gr.Group(visible=False)}
            figures = render_run(view, metrics, note=why_closed(view, room.config))
        except USER_ERRORS as error:
            return {looked_at.figures: render_message(str(error)), looked_at.flipped: gr.Group(visible=False)}
        systems = view.systems
        a, b = systems[0], systems[min(1, len(systems) - 1)]
        return {
            looked_at.figures: figures,
            looked_at.flipped: gr.Group(visible=len(systems) > 1),
            looked_at.flip_a: gr.Dropdown(systems, value=a),
            looked_at.flip_b: gr.Dropdown(systems, value=b),
            looked_at.flips: flips_of(view, a, b),
        }

    def flips_of(view: RunView, a: str, b: str) -> str:
        found = flips(view, a, b)
        return render_flips(
            found,
            count_flips(found),
            a,
            b,
            openable=not why_closed(view, room.config),
            answers=any(rule is not None for rule in view.rules.values()),
        )

    def other_flips(shown: str, a: str, b: str) -> str:
        try:
            return flips_of(library.open(shown)[0], a, b)
        except USER_ERRORS as error:
            return render_message(str(error))

    def open_flip(shown: str, a: str, b: str, event: gr.EventData) -> Update:
        try:
            opening = open_question(library.open(shown)[0], str(event.question), a, b, room.config)
        except USER_ERRORS as error:
            raise gr.Error(str(error), print_exception=False) from error
        return {
            parts.question: opening.question,
            parts.retriever_a: opening.retrievers[0],
            parts.retriever_b: opening.retrievers[1],
            parts.k: opening.k,
            # What a run was asked over is the page's own corpus (`why_closed`).
            parts.corpus: "",
            tabs: gr.Tabs(selected="compare"),
        }

    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    # Followers sleep most of the time: no number of them keeps others out.
    following: dict[str, Any] = {**private, "concurrency_limit": None, "trigger_mode": "once"}
    reading: dict[str, Any] = {**private, "concurrency_id": "runs", "concurrency_limit": 2}
    # A second choice that is made before the first is shown counts.
    choosing: dict[str, Any] = {**reading, "trigger_mode": "always_last"}
    outputs = [*controls.buttons(), *looked_at.all()]
    settings = [controls.dataset, controls.n, controls.seed, controls.retrievers, controls.read]
    begun = controls.run.click(begin, [*settings, room.browser], outputs, **following)
    resumed = controls.resume.click(resume, [looked_at.shown, room.browser], outputs, **following)
    for event in (begun, resumed):
        event.then(ended, room.browser, looked_at.all(), **reading)
    controls.pause.click(pause, room.browser, **private)
    tab.select(refresh, [looked_at.shown, looked_at.against], looked_at.all(), **reading)
    tab.select(follow, [room.browser, looked_at.shown], controls.buttons(), **following)
    looked = gr.on(
        [looked_at.shown.input, looked_at.against.input],
        look,
        [looked_at.shown, looked_at.against],
        looked_at.all(),
        **choosing,
    )
    looked.then(follow, [room.browser, looked_at.shown], controls.buttons(), **following)
    gr.on(
        [looked_at.flip_a.input, looked_at.flip_b.input],
        other_flips,
        [looked_at.shown, looked_at.flip_a, looked_at.flip_b],
        looked_at.flips,
        **choosing,
    )
    opened = [parts.question, parts.retriever_a, parts.retriever_b, parts.k, parts.corpus, tabs]
    parts.ask_after(
        looked_at.flips.click(open_flip, [looked_at.shown, looked_at.flip_a, looked_at.flip_b], opened, **reading)
    )

    def runs() -> list[dict[str, Any]]:
        """The evaluations of this page's folder, newest first: state, data sets, systems and figures of each."""
        with told_in_a_line("a list of runs"):
            return [{key: value for key, value in run.items() if key != "path"} for run in runs_json(library.runs())]

    with tab:
        gr.api(runs, api_name="runs", concurrency_id="runs")


def _owner(request: gr.Request, kept: str) -> str:
    """Who may pause what they began: a user or a browser, also after the page was loaded again; else this visit alone."""
    return owner_of(request, kept) or f"visit:{request.session_hash}"


def whole_field(number: float | None, field: str, example: str) -> int:
    """What a field for a number holds.

    Raises:
        ConfigError: Nothing, or no whole number.
    """
    if number is None:
        raise ConfigError(f'the field "{field}" is empty: enter a whole number, such as {example}')
    if number != int(number):
        raise ConfigError(f'the field "{field}" takes a whole number, such as {example}; got {number}')
    return int(number)


def _controls(room: Room) -> Controls:
    config = room.config
    sets = list(question_sets(config))
    names = in_order([*config.retrievers, CLOSED_BOOK], config)
    chosen = [name for name in names if name in config.page.retrievers]
    if not sets:
        place(render_message("there are no questions to ask: name data sets in the configuration's [eval.datasets]"))
    with gr.Row(elem_classes="mg-settings"):
        first = sets[0] if sets else None
        dataset = gr.Dropdown(sets, value=first, label="Data set", elem_id="eval-dataset", min_width=150)
        n = gr.Number(
            config.eval.n or QUESTIONS,
            label="Questions, drawn by the seed (0 asks all)",
            precision=0,
            minimum=0,
            elem_id="eval-n",
            min_width=200,
        )
        seed = gr.Number(config.eval.seed, label="Seed", precision=0, minimum=0, elem_id="eval-seed", min_width=110)
    retrievers = gr.CheckboxGroup(
        list(names),
        value=chosen,
        label="Retrievers: the first is what the others are compared with",
        elem_id="eval-retrievers",
    )
    with gr.Row(elem_classes="mg-actions"):
        read = gr.Checkbox(
            config.eval.read,
            label="Ask the reader (without it rankings are measured, in seconds)",
            elem_id="eval-read",
            scale=3,
        )
        run = gr.Button("Run", variant="primary", elem_id="eval-run", min_width=110, interactive=bool(sets))
        pause = gr.Button("Pause", elem_id="eval-pause", min_width=110, interactive=False)
        resume = gr.Button("Resume", elem_id="eval-resume", min_width=110, interactive=False)
    status = place(elem_id="eval-status")
    return Controls(dataset, n, seed, retrievers, read, run, pause, resume, status)


def _run_parts() -> RunParts:
    with gr.Row(elem_classes="mg-settings"):
        nothing = [("none", NO_RUN)]
        shown = gr.Dropdown(nothing, value=NO_RUN, label="Show the run", elem_id="run-shown", min_width=200)
        against = gr.Dropdown(nothing, value=NO_RUN, label="Compared with", elem_id="run-against", min_width=200)
    figures = place(elem_id="figures")
    with gr.Group(visible=False, elem_classes="mg-flipped") as flipped:
        place('<h2 class="mg-title">Questions that flip</h2>')
        with gr.Row(elem_classes="mg-settings"):
            flip_a = gr.Dropdown([], label="Flips between", elem_id="flip-a", min_width=150)
            flip_b = gr.Dropdown([], label="and", elem_id="flip-b", min_width=150)
        found = place(script=_BUTTONS, elem_id="flips")
    place('<h2 class="mg-title">All runs</h2>')
    runs = place(elem_id="runs")
    return RunParts(shown, against, figures, flipped, flip_a, flip_b, found, runs)
