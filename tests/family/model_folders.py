"""Folders that have the names of a model's files; nobody reads their weights."""

from factories import write_files


def make_models(folder, *names):
    """`folder/models` with these models, and `folder/base`; returns the models' folder."""
    for name in ("base", *(f"models/{name}" for name in names or ("a-0", "a-1", "b-0", "b-1"))):
        files = {"config.json": '{"model_type": "bert"}', "model.safetensors": b""}
        write_files(folder / name, files)
    return folder / "models"
