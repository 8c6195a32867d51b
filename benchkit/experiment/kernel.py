"""A kernel that measures: one process per arm, kept alive, in which papermill runs notebooks.

Starting a kernel and importing Dask costs 5 to 7 s; a notebook in a living one 0.25 s. Knows how to
start, use, interrupt and kill it. Does not know what the notebook measures.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import papermill
import yaml
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError

from benchkit.errors import BenchkitError
from benchkit.experiment.environment import Environment
from benchkit.experiment.notebooks import checked_parameters, stamp

__all__ = ["KernelTrouble", "MeasuringKernel"]

START_TIMEOUT_S = 60.0
# It warns of parameters it cannot parse (a text with `=` in it) and sets them all the same.
logging.getLogger("papermill").setLevel(logging.ERROR)


class KernelTrouble(BenchkitError):
    """The measuring process died, hung, or raised. `kind`: "died", "timeout" or "raised"."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


class _OneKernel(KernelSpecManager):
    """Knows one kernel: ours. Nothing is written to the user's Jupyter folders."""

    spec: KernelSpec

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return self.spec


class MeasuringKernel:
    """A process of the environment under test.

    Parameters
    ----------
    environment : Environment
        Gives the Dask configuration and the variables.
    folder : path
        Where the configuration file is written, and kept with the experiment.
    """

    def __init__(self, environment: Environment, folder: Path) -> None:
        self.environment = environment
        self.folder = Path(folder)
        self._manager: KernelManager | None = None

    def start(self) -> None:
        """Start the process; nothing happens if it runs already."""
        if self.alive:
            return
        self.close()
        specs = _OneKernel()
        specs.spec = KernelSpec(
            argv=[
                sys.executable,
                "-m",
                "ipykernel_launcher",
                "-f",
                "{connection_file}",
                "--log-level=40",
            ],
            display_name=f"benchkit: {self.environment.name}",
            language="python",
        )
        manager = KernelManager(kernel_name="benchkit", kernel_spec_manager=specs)
        manager.start_kernel(env=self._variables())
        self._manager = manager

    def _variables(self) -> dict[str, str]:
        """Return the process's variables; its Dask configuration comes from one file alone.

        A file keeps lists, None and spaces, which ``DASK_*`` variables lose, and they would win
        over it: with an environment of its own, an arm does not inherit them.
        """
        variables = dict(os.environ)
        if self.environment.dask:
            variables = {k: v for k, v in variables.items() if not k.startswith("DASK_")}
            path = self.folder / f"dask-{self.environment.name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(dict(self.environment.dask)), encoding="utf-8")
            variables["DASK_CONFIG"] = str(path.resolve())
        # What the kernel prints about debuggers and transports is nobody's business here.
        variables.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        variables.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning")
        return {**variables, **self.environment.variables}

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._manager is not None and self._manager.is_alive()

    def execute(
        self, notebook: Path, output: Path, parameters: Mapping[str, Any], *, timeout_s: float
    ) -> None:
        """Run a notebook in the process; the executed notebook is always kept.

        Raises
        ------
        BadNotebook
            The notebook has no such parameter, or a value would not arrive as it is.
        KernelTrouble
            The process died, took longer than `timeout_s` for a cell, or a cell raised.
        """
        parameters = checked_parameters(notebook, parameters)
        self.start()
        output.parent.mkdir(parents=True, exist_ok=True)
        status = "completed"
        try:
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=parameters,
                kernel_name="benchkit",
                km=self._manager,
                progress_bar=False,
                autosave_cell_every=0,  # an autosave would fall into the measurement
                start_timeout=START_TIMEOUT_S,
                execution_timeout=timeout_s,
                stdout_file=None,
            )
        except PapermillExecutionError as error:
            status = f"raised {error.ename}: {error.evalue}"
            raise KernelTrouble("raised", f"{error.ename}: {error.evalue}") from error
        except CellTimeoutError as error:
            status = "timeout"
            self.kill()
            raise KernelTrouble("timeout", f"no end within {timeout_s:g} s") from error
        except (DeadKernelError, RuntimeError) as error:
            status = "died"
            self.kill()
            raise KernelTrouble("died", "the measuring process died") from error
        except BaseException:
            status = "interrupted"
            raise
        finally:
            stamp(output, environment=self.environment.name, status=status)

    def kill(self) -> None:
        """End the process and all its children at once."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        group = getattr(manager.provisioner, "pgid", None)
        with suppress(Exception):
            manager.shutdown_kernel(now=True)
        if group:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)

    def close(self) -> None:
        """End the process."""
        self.kill()

    def __enter__(self) -> MeasuringKernel:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
