"""Kernel for measurements: one reused process per arm, in which papermill runs notebooks.

Starting a kernel and importing Dask takes 5 to 7 s; a notebook in a running kernel takes 0.25 s.
This module starts, uses, interrupts and kills kernels. It reads the parameters of a notebook itself
and checks values before the notebook runs: papermill sets parameters that a notebook does not have,
loses types silently, and parses some declarations incorrectly.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import queue
import signal
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import zmq.asyncio
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

from benchkit.captured_process import end_processes, process_tree
from benchkit.errors import BenchkitError, InvalidNotebookError, UsageError, did_you_mean
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.cache import Built
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.process_variables import process_variables
from benchkit.experiment.paths import file_name
from benchkit.experiment.run.events import PROGRESS_LOG
from benchkit.interruption import uninterrupted
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.cluster.waiting import WAITING
from benchkit.measure.deadline import call_with_timeout
from benchkit.measure.secrets import redact, redact_file, redact_text, remember_secrets
from benchkit.private_folder import private_folder
from benchkit.whole_file import write_whole

#: Limit for the start of a kernel in seconds.
START_TIMEOUT_S = 60.0
#: Limit for ending the connections to a kernel in seconds.
CONNECTION_TIMEOUT_S = 5.0
#: Limit for closing a remote cluster, or for an answer of a scheduler, in seconds.
REPLY_TIMEOUT_S = 90.0
#: Longest path for temporary files: paths of sockets have 107 characters at most, and those that
#: `multiprocessing` makes there are 32 characters longer.
MAX_TEMPORARY_PATH = 75
# Papermill warns about parameters it cannot parse (text with `=`), but still sets them.
logging.getLogger("papermill").setLevel(logging.ERROR)


#: A stopped kernel cannot notice that benchkit was killed: on Linux the system then kills it
#: (prctl PR_SET_PDEATHSIG). Its workers end by themselves.
_LAUNCH = """
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
except Exception:
    pass
try:
    import {}
except Exception:
    pass  # the notebook imports it again and shows the error
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""
_CHECK_CONNECTION = (
    "from benchkit.measure.cluster.running import check_connection; check_connection({!r})"
)
_CLOSE_CLUSTERS = (
    "from benchkit.measure.cluster.reuse import close_reused_clusters; close_reused_clusters()"
)


#: Bokeh gives its script, of 1.3 MB, a second time for an extension of JupyterLab.
_SECOND_SCRIPT = "application/vnd.bokehjs_load.v0+json"


def _is_not_kernel_death(record: logging.LogRecord) -> bool:
    return "Kernel died" not in record.getMessage()


class KernelError(BenchkitError):
    """A notebook did not end normally."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)

    @property
    def is_usage_error(self) -> bool:
        """Whether a cell refused an argument: a mistake of the user, so that a retry is useless."""
        names = {"UsageError", *(cls.__name__ for cls in UsageError.__subclasses__())}
        return self.kind == "raised" and str(self).partition(":")[0] in names


def _register_engine() -> str:
    """Return the engine that saves a notebook once, not before and after each cell."""
    from papermill.engines import NBClientEngine, papermill_engines

    class SavingOnce(NBClientEngine):
        @classmethod
        def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> Any:
            path, nb_man.output_path = nb_man.output_path, None
            try:
                return super().execute_managed_notebook(nb_man, kernel_name, **options)
            finally:
                nb_man.output_path = path
                nb_man.save()

    papermill_engines.register("benchkit", SavingOnce)
    return "benchkit"


class _ClusterProgress:
    """File that logs the lines about awaited workers in the stderr of a notebook."""

    def write(self, text: str) -> None:
        """Log the lines about awaited workers, skip all others."""
        for line in text.splitlines():
            if line.startswith(WAITING):
                logging.getLogger(PROGRESS_LOG).info(redact_text(line))

    def flush(self) -> None:
        """Do nothing: each line is logged at once."""


class _SingleKernelSpec(KernelSpecManager):
    """Return one given kernel spec. Nothing is written to the user's Jupyter folders."""

    spec: KernelSpec

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return self.spec


class _Manager(KernelManager):
    """Keep the last client, to close its channels: papermill does not close them.

    Otherwise each notebook leaves ten open files and two threads (jupyter/nbclient#348), and 100
    notebooks reach the limit of 1024 open files of a process.
    """

    last_client: Any = None

    def client(self, **kwargs: Any) -> Any:
        # With a context of its own, the client would end it in `stop_channels`.
        self.last_client = super().client(context=zmq.asyncio.Context(), **kwargs)
        return self.last_client

    def close_channels(self) -> None:
        """Close the connections of the last notebook."""
        client, self.last_client = self.last_client, None
        if client is not None:
            client.stop_channels()
            # Not in this thread: after Ctrl-C, ZeroMQ can wait for a half-made socket for ever.
            call_with_timeout(client.context.term, CONNECTION_TIMEOUT_S)


class MeasuringKernel:
    """A process of the environment under test."""

    def __init__(
        self, environment: Environment, folder: Path, name: str = "", *, imports: str = "ctypes"
    ) -> None:
        self.environment = environment
        self.folder = Path(folder)
        self.name = name or environment.name
        #: Module that the process imports while this process imports papermill.
        self.imports = imports
        self._manager: _Manager | None = None
        self._private: TemporaryDirectory[str] | None = None
        remember_secrets(
            environment.dask, environment.variables, environment.cluster, environment.clusters
        )

    @cached_property
    def built(self) -> Built:
        """Environment of the process: built when it first starts, used again when it restarts."""
        return build(self.environment)

    def start(self) -> None:
        """Start the process; do nothing if it is already running."""
        if self.alive:
            return
        self.close()
        specs = _SingleKernelSpec()
        specs.spec = KernelSpec(
            argv=[
                str(self.built.python),
                "-c",
                _LAUNCH.format(self.imports),
                "-f",
                "{connection_file}",
                "--log-level=40",
                "--HistoryManager.enabled=False",  # or it writes to the user's home folder
            ],
            display_name=f"benchkit: {self.environment.name}",
            language="python",
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        with uninterrupted():
            self._private = private_folder()
            folder = Path(self._private.name)
            manager = _Manager(
                kernel_name="benchkit",
                kernel_spec_manager=specs,
                connection_file=str(folder / "kernel.json"),  # has a key
            )
            # With the manager's default, blocking client, nbclient waits forever for a dead kernel.
            manager.client_class = "jupyter_client.asynchronous.AsyncKernelClient"
            variables = process_variables(self.environment, self.built, folder)
            if self._is_local and len(str(folder)) <= MAX_TEMPORARY_PATH:
                # What processes that are killed leave, such as the folders of workers, ends there.
                variables["TMPDIR"] = self.environment.variables.get("TMPDIR", str(folder))
            # Without a log file, output of workers would appear in the progress display.
            with (folder / self._log_name).open("wb") as log:
                manager.start_kernel(env=variables, stdout=log, stderr=log)
            self._manager = manager

    @property
    def _is_local(self) -> bool:
        clusters = (self.environment.cluster, *self.environment.clusters.values())
        return all(ClusterSpec.from_dict(options).is_local for options in clusters)

    @property
    def _log_name(self) -> str:
        return f"kernel-{file_name(self.name)}.log"

    def _publish_log(self, folder: Path) -> None:
        """Add the log of the ended process, without secrets, to the log in the store."""
        log, stored = folder / self._log_name, self.folder / self._log_name
        redact_file(log)
        with suppress(OSError):
            earlier = stored.read_bytes() if stored.exists() else b""
            write_whole(stored, earlier + log.read_bytes())

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._manager is not None and self._manager.is_alive()

    def execute(
        self, notebook: Path, output: Path, parameters: Mapping[str, Any], *, timeout_s: float
    ) -> None:
        """Run a notebook in the process; the executed notebook is always saved."""
        parameters = checked_parameters(notebook, parameters)
        self.start()
        # Takes 2 s, while the process imports Dask: other commands do not need this import.
        import papermill
        from nbclient.exceptions import CellTimeoutError, DeadKernelError

        output.parent.mkdir(parents=True, exist_ok=True)
        manager, status = self._manager, "completed"
        private = private_folder()  # the draft holds all arguments as they are
        draft = Path(private.name) / output.name
        try:
            papermill.execute_notebook(
                str(notebook),
                str(draft),
                parameters=parameters,
                kernel_name="benchkit",
                engine_name=_register_engine(),
                km=manager,
                progress_bar=False,
                autosave_cell_every=0,  # an autosave would disturb the measurement
                start_timeout=START_TIMEOUT_S,
                execution_timeout=timeout_s,
                stdout_file=None,
                stderr_file=_ClusterProgress(),
            )
        except papermill.PapermillExecutionError as error:
            status = f"raised {error.ename}: {error.evalue}"
            text = redact_text(f"{error.ename}: {error.evalue}")
            raise KernelError("raised", text) from error
        except CellTimeoutError as error:
            status = "timeout"
            self.kill()
            raise KernelError("timeout", f"no end within {timeout_s:g} s") from error
        except (DeadKernelError, RuntimeError) as error:
            status = "died"
            self.kill()
            raise KernelError("died", "the measuring process died") from error
        except OSError as error:
            status = "not written"
            text = error.strerror or str(error)
            raise OSError(error.errno, text, error.filename or str(output)) from error
        except BaseException:
            status = "interrupted"
            # A task of nbclient still waits for a reply; hide its message "Kernel died".
            for name in ("asyncio", "papermill", "traitlets"):
                logging.getLogger(name).addFilter(_is_not_kernel_death)
            raise
        finally:
            if manager is not None and status != "interrupted":
                manager.close_channels()
            publish_executed(
                draft, output, environment=self.environment.name, status=redact_text(status)
            )
            private.cleanup()

    def check_connection(self) -> None:
        """Raise `KernelError` if no scheduler responds at the address of the cluster."""
        self.start()
        assert self._manager is not None
        try:
            code = _CHECK_CONNECTION.format(dict(self.environment.cluster))
            reply = self._reply(self._manager, code, is_new=True)
        except (queue.Empty, RuntimeError, TimeoutError):
            return  # no reply: the measurement will fail, and say why
        if reply["status"] == "error":
            raise KernelError("raised", redact_text(f"{reply['ename']}: {reply['evalue']}"))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Resume the process for the body of the `with` statement, and stop it afterwards.

        Idle processes of other arms use a fifth of a core; stopped processes use nothing. Without
        SIGSTOP (Windows) the processes are not stopped.
        """
        self._signal("SIGCONT")
        try:
            yield
        finally:
            self._signal("SIGSTOP")

    def _signal(self, name: str) -> None:
        # Signal this process only: clusters end with each measurement, and its helper processes
        # must not be stopped, because stopped helpers could not exit when it is killed.
        pid = getattr(self._manager and self._manager.provisioner, "pid", None)
        if pid and hasattr(signal, name):
            with suppress(OSError):
                os.kill(pid, getattr(signal, name))

    def kill(self) -> None:
        """End the process and all its children at once."""
        with uninterrupted():
            manager, self._manager = self._manager, None
            private, self._private = self._private, None
            if manager is not None:
                self._kill(manager)
            if private is not None:
                self._publish_log(Path(private.name))
                private.cleanup()

    @staticmethod
    def _kill(manager: _Manager) -> None:
        group = getattr(manager.provisioner, "pgid", None)  # Windows has no process groups
        processes = process_tree(getattr(manager.provisioner, "pid", None))
        with suppress(Exception):
            manager.shutdown_kernel(now=True)
        if group:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        end_processes(processes)
        # After Ctrl-C the connections are open. Python would close them at its exit, in an order in
        # which ZeroMQ can wait for ever.
        with suppress(Exception):
            manager.close_channels()

    def close(self) -> None:
        """End the process; if it keeps a remote cluster, close the cluster first."""
        spec = ClusterSpec.from_dict(self.environment.cluster)
        try:
            if self.alive and self._manager is not None and not (spec.is_local or spec.address):
                self._signal("SIGCONT")
                # Do not request a kernel shutdown: it waits 30 s for helpers that ignore signals,
                # and ends local workers that their cluster then starts again.
                with suppress(Exception):
                    self._manager.interrupt_kernel()
                    self._reply(self._manager, _CLOSE_CLUSTERS)
        finally:  # also at Ctrl-C
            self.kill()

    @staticmethod
    def _reply(manager: _Manager, code: str, *, is_new: bool = False) -> dict[str, Any]:
        """Run code in the process, without a notebook; return the content of the reply."""
        client = BlockingKernelClient(**manager.get_connection_info(session=True))
        # A heartbeat thread that starts now can fail, and print it, while the channels stop.
        client.start_channels(stdin=False, hb=False, control=False)
        try:
            if is_new:
                client.wait_for_ready(timeout=START_TIMEOUT_S)
            message = client.execute_interactive(
                code, silent=True, timeout=REPLY_TIMEOUT_S, allow_stdin=False,
                output_hook=lambda message: None,
            )  # fmt: skip
        finally:
            client.stop_channels()
        content: dict[str, Any] = message["content"]
        return content

    def __enter__(self) -> MeasuringKernel:
        try:
            self.start()
        except BaseException:  # a signal waited for the start: nothing else ends the process
            self.kill()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True)
class Parameter:
    """One parameter of a notebook."""

    name: str  # Name of the variable
    type: str  # Annotation as written, or the type of the default
    default: Any  # Value of the literal
    comment: str  # Comment at the end of its line, or ""


def declared_parameters(notebook: str | Path) -> dict[str, Parameter]:
    """Return the parameters of a notebook, in the order of its parameters cell."""
    try:
        content = nbformat.read(str(notebook), as_version=4)
    except (OSError, ValueError, nbformat.reader.NotJSONError) as error:
        raise InvalidNotebookError(f"{notebook}: cannot be read as a notebook: {error}") from error
    for cell in content.cells:
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", []):
            return _parse(cell.source, notebook)
    return {}


def _parse(source: str, notebook: str | Path) -> dict[str, Parameter]:
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    parameters = {}
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                kind = ast.unparse(node.annotation)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                kind = ""
            case _:
                raise InvalidNotebookError(
                    f"{notebook}: line {node.lineno} of its parameters cell is not "
                    "`name: type = literal`"
                )
        try:
            default = ast.literal_eval(value)
        except ValueError as error:
            raise InvalidNotebookError(
                f"{notebook}: the default of parameter {name!r} is not a literal"
            ) from error
        comment = comments.get(node.end_lineno or node.lineno, "")
        parameters[name] = Parameter(name, kind or type(default).__name__, default, comment)
    return parameters


def checked_parameters(notebook: str | Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, after checking that the notebook receives them unchanged."""
    declared = declared_parameters(notebook)
    for name, value in values.items():
        if name not in declared:
            hint = did_you_mean(name, declared, f"it has {', '.join(declared) or 'none'}")
            raise InvalidNotebookError(f"{notebook}: no parameter named {name!r}: {hint}")
        _require_json(notebook, name, value)
        _require_type(notebook, declared[name], value)
    return dict(values)


def _require_json(notebook: str | Path, name: str, value: Any) -> None:
    # Reject values that the transfer changes: tuples become lists, integer keys and np.int64 text.
    # NaN is not valid JSON, but papermill passes it unchanged.
    text = repr(value)
    with suppress(TypeError, ValueError):
        if repr(json.loads(json.dumps(value))) == text:
            return
    raise InvalidNotebookError(
        f"{notebook}: parameter {name!r} is {text[:60]}, a {type(value).__name__}: only strings, "
        "numbers, booleans, None, lists and dictionaries reach a notebook unchanged"
    )


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "list": (list,),
    "dict": (dict,),
    "None": (type(None),),
}


def _require_type(notebook: str | Path, parameter: Parameter, value: Any) -> None:
    names = [part.strip().partition("[")[0] for part in parameter.type.split("|")]
    if not all(name in _TYPES for name in names):
        return
    allowed = tuple(kind for name in names for kind in _TYPES[name])
    if isinstance(value, allowed) and (not isinstance(value, bool) or bool in allowed):
        return
    raise InvalidNotebookError(
        f"{notebook}: parameter {parameter.name!r} is {value!r}: it must be {parameter.type}"
    )


def publish_executed(draft: Path, output: Path, **metadata: Any) -> None:
    """Write an executed notebook with metadata under ``benchkit``, without secrets.

    Papermill marks the cells of a dead kernel `completed`, and keeps the kernel name of the input
    notebook, so the real status and environment are stored here.
    """
    with suppress(OSError, ValueError):
        notebook = nbformat.read(str(draft), as_version=4)
        for cell in notebook.cells:
            for shown in cell.get("outputs", ()):
                shown.get("data", {}).pop(_SECOND_SCRIPT, None)
        notebook.metadata["benchkit"] = {**notebook.metadata.get("benchkit", {}), **metadata}
        # Options of the cluster stand in a cell, and messages of errors in the outputs.
        write_whole(output, nbformat.writes(nbformat.from_dict(redact(notebook))) + "\n")
