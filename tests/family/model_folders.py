"""Folders that have the names of a model's files; nobody reads their weights."""


def make_models(folder, *names):
    """`folder/models` with these models, and `folder/base`; returns the models' folder."""
    for name in ("base", *(f"models/{name}" for name in names or ("a-0", "a-1", "b-0", "b-1"))):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text('{"model_type": "bert"}')
        (folder / name / "model.safetensors").write_bytes(b"")
    return folder / "models"
