"""The page, served: `launch` loads what the first question needs, opens the page and stays until it is stopped."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from typing import Any

import gradio as gr

from rag_app import console
from rag_app.auth import checker, read_users, readable_by_others
from rag_app.config import Config
from rag_app.errors import USER_ERRORS, ConfigError
from rag_app.page.compare_tab import COMPARISONS_AT_ONCE
from rag_app.page.layout import lay_out
from rag_app.page.offline import refuse_fetching
from rag_app.page.theme import CSS, ICON, page_theme, report_style
from rag_app.pipeline import Pipeline

EVERYWHERE = ("0.0.0.0", "::")


def build_page(pipeline: Pipeline) -> gr.Blocks:
    """The page around a pipeline, with its queue, not yet served. Give `appearance()` to its `launch`."""
    refuse_fetching()
    page = lay_out(pipeline)
    page.queue(max_size=pipeline.config.page.max_queue, default_concurrency_limit=COMPARISONS_AT_ONCE)
    return page


def access(config: Config) -> dict[str, Any]:
    """What Gradio's `launch` takes to know who may come in, from where, and with how large files.

    Raises:
        ConfigError: `page.auth` cannot be used.
    """
    page = config.page
    given: dict[str, Any] = {"max_file_size": f"{page.max_upload_mb}mb"}
    if page.root_path:
        given["root_path"] = page.root_path
    if page.auth:
        given |= {"auth": checker(read_users(page.auth)), "auth_message": "This page is open to its users only."}
    return given


def appearance() -> dict[str, Any]:
    """What Gradio's `launch` takes to make the page look as it should, without a request that leaves this machine."""
    return {
        "theme": page_theme(),
        "css": report_style(),
        "css_paths": CSS,
        "favicon_path": ICON,
        "footer_links": ["api"],
        "run_history": False,
        "ssr_mode": False,
        "pwa": False,
        "share": False,
    }


def launch(config: Config) -> None:
    """Load retrievers and reader, serve the page and stay until interrupted.

    Without a reader the page still opens: retrieval works, and the answer panes say what is missing.

    Raises:
        ConfigError: The address cannot be used.
        RetrieverError: A retriever that the page opens with cannot be loaded.
        WeightsError: Weights of its encoder cannot be had.
    """
    require_free(config.page.host, config.page.port)
    access(config)  # as early as the address, before minutes go into loading
    if readable_by_others(config.page.auth):
        console.log("other users of this machine can read the passwords: chmod 600 the file of page.auth")
    # A service manager's stop request ends the page in the same orderly way as Ctrl-C: the reader's processes go too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with console.progress_bar() as progress:
            pipeline = Pipeline(config, log=console.log, progress=progress)
            load_retrievers(pipeline)
        with contextlib.closing(pipeline):
            load_reader(pipeline)
            serve(pipeline)
    except KeyboardInterrupt:
        console.log("closed")


def load_retrievers(pipeline: Pipeline) -> None:
    """Load all that can be chosen; those the page does not open with may fail, and are then told where chosen."""
    started = time.perf_counter()
    console.log("loading retrievers: seconds, or minutes where an index must be built first")
    for name in pipeline.config.retrievers:
        try:
            pipeline.retriever(name)
        except USER_ERRORS as error:
            if name in pipeline.config.page.retrievers:
                raise
            console.fail(f"retriever {name} cannot be used: {error}")
    console.log(f"retrievers ready after {time.perf_counter() - started:.0f} s")


def load_reader(pipeline: Pipeline) -> None:
    """Load the reader, or say why there is none."""
    started = time.perf_counter()
    console.log(f"loading the reader {pipeline.config.generator.model}: 10 to 90 seconds")
    try:
        pipeline.generator.check()
    except USER_ERRORS as error:
        console.fail(f"{error}; the page opens all the same and shows passages without answers")
    else:
        console.log(f"reader ready after {time.perf_counter() - started:.0f} s")


def serve(pipeline: Pipeline) -> None:
    """Serve the page until interrupted."""
    host, port = pipeline.config.page.host, pipeline.config.page.port
    page = build_page(pipeline)
    served = access(pipeline.config) | appearance()
    try:
        page.launch(server_name=host, server_port=port, prevent_thread_lock=True, quiet=True, **served)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the page cannot be opened on {host}:{port}: {error}; behind a proxy, set NO_PROXY=127.0.0.1,localhost"
        ) from error
    shown = "127.0.0.1" if host in EVERYWHERE else host
    console.out.print(f"The page is open: [bold]http://{shown}:{port}[/bold] (Ctrl-C closes it)", highlight=False)
    if host in EVERYWHERE:
        whom = "the users of page.auth" if pipeline.config.page.auth else "everybody who can reach this machine"
        console.log(f"{whom} can use the page")
    try:
        threading.Event().wait()
    finally:
        console.log("closing the page")
        page.close(verbose=False)


def require_free(host: str, port: int) -> None:
    """Check the address before minutes go into loading.

    Raises:
        ConfigError: Another program listens there, or this machine has no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"the page cannot listen on {host}:{port}: {error.strerror or error}; choose another with --port"
            ) from error
