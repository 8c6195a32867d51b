import json
import threading

import dask
import pytest

from benchkit.errors import InvalidStoreError
from benchkit.store.files import LocalFiles
from benchkit.store.manifest import default_store, read_meta, write_meta
from benchkit.store.storage import decode_object
from benchkit.store.store import Store


def test_default_store_reads_environment_then_config(monkeypatch):
    monkeypatch.delenv("BENCHKIT_STORE", raising=False)
    assert default_store() == "benchkit-store"

    with dask.config.set({"benchkit.store": "/from/config"}):
        assert default_store() == "/from/config"

        monkeypatch.setenv("BENCHKIT_STORE", "/from/environment")
        assert default_store() == "/from/environment"


def test_default_store_is_the_same_in_folder_of_notebooks(tmp_path, monkeypatch):
    monkeypatch.delenv("BENCHKIT_STORE", raising=False)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    default = Store().path.resolve()
    monkeypatch.chdir(tmp_path / "notebooks")

    assert Store().path.resolve() == Store("").path.resolve() == default
    assert default == (tmp_path / "benchkit-store").resolve()


def test_write_meta_writes_format_version_and_id(tmp_path):
    meta = write_meta(LocalFiles(tmp_path / "new"))

    assert decode_object((tmp_path / "new" / "store.json").read_bytes()) == meta
    assert meta["format"] == "benchkit-store"
    assert meta["version"] == 1
    assert set(meta) == {"format", "version", "created", "id"}


def test_write_meta_by_several_writers_creates_one_store(tmp_path):
    barrier, ids = threading.Barrier(8), []

    def create():
        barrier.wait()
        files = LocalFiles(tmp_path / "new")
        read_meta(files, create=True)
        ids.append(write_meta(files)["id"])

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ids) == 8
    assert len(set(ids)) == 1


@pytest.mark.parametrize("create", [True, False])
def test_store_rejects_folder_with_other_files(tmp_path, create):
    (tmp_path / "thesis.tex").write_text("")

    with pytest.raises(InvalidStoreError, match=r"no store\.json.*empty or a new folder"):
        Store(tmp_path, create=create)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_store_rejects_path_of_a_file(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(InvalidStoreError, match="give a folder"):
        Store(tmp_path / "file")


@pytest.mark.parametrize("exists", [True, False])
def test_store_without_create_requires_a_store(tmp_path, exists):
    if exists:
        (tmp_path / "folder").mkdir()

    with pytest.raises(InvalidStoreError, match="`benchkit run` creates one"):
        Store(tmp_path / "folder", create=False)


def test_store_writes_nothing_before_first_run(tmp_path):
    store = Store(tmp_path / "new")

    assert len(store.runs()) == len(store) == 0
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "damaged: "),
        ("[]", "damaged: not a JSON object"),
        ('{"format": "other", "version": 1}', "does not describe a benchkit store"),
        ('{"format": "benchkit-store", "version": "x"}', "does not describe a benchkit store"),
        ('{"format": "benchkit-store", "version": 2}', "written in format 2.*upgrade benchkit"),
    ],
)
def test_store_rejects_invalid_manifest_in_one_line(tmp_path, text, message):
    (tmp_path / "store.json").write_text(text)

    with pytest.raises(InvalidStoreError, match=message) as caught:
        Store(tmp_path)
    assert "\n" not in str(caught.value)


RUN = "019dc0de-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    "names",
    [
        [f"experiments/{RUN}/plan.json"],
        [f"experiments/{RUN}/kernel-base.log", f"runs/2026-11/{RUN}.nc"],
        [f"tmp/recordings/{RUN}.recording/head.json"],
        [f"marks/{RUN}.json"],
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_store_adopts_folder_with_files_of_a_store_only(tmp_path, names, create):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    store = Store(tmp_path, create=create)

    store.create()

    assert json.loads((tmp_path / "store.json").read_bytes())["format"] == "benchkit-store"


@pytest.mark.parametrize(
    "name", ["runs/1/events.json", "experiments/mine/a.py", "index/book.txt", "models/a.bin"]
)
def test_store_rejects_folder_with_similar_names(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("")

    with pytest.raises(InvalidStoreError, match=r"no store\.json.*empty or a new folder"):
        Store(tmp_path)
