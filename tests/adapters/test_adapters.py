"""Each adapter with the package it is for; those that are not installed are skipped."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ccal
from ccal import DualEncoder, Index, InputError
from ccal.adapters import (
    Embedder,
    SentenceEncoder,
    pairs_from_rows,
    parquet_rows,
    to_onnx,
    to_program,
)
from ccal.encoders import DenseTower
from ccal.serve import IndexCollection
from ccal.training import Callback
from ccal.training.progress import TensorBoard
from tests.adapters.conftest import TEXTS
from tests.serve.live import Live


@pytest.mark.parametrize("modality", ["image", "text"])
def test_onnx_gives_the_same_embeddings(model: DualEncoder, modality: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    width = 6 if modality == "image" else len(model.front_ends["text"].vocabulary)  # type: ignore[attr-defined]
    rows = torch.randn(7, width)
    to_onnx(model, modality, rows, tmp_path / "tower.onnx")
    session = runtime.InferenceSession(tmp_path / "tower.onnx")
    for count in (1, 7):
        (found,) = session.run(["embeddings"], {"features": rows[:count].numpy()})
        np.testing.assert_allclose(found, model.encode(modality, rows[:count]), atol=1e-5)


def test_an_exported_program_takes_batches_of_any_size(model: DualEncoder) -> None:
    rows = torch.randn(5, 6)
    program = to_program(model, "image", rows).module()
    for count in (1, 5):
        found = program(rows[:count])
        torch.testing.assert_close(found, model.encode("image", rows[:count]), atol=1e-6, rtol=0)


def test_embedders_refuse_what_has_no_projection() -> None:
    model = DualEncoder(dim=4, image=DenseTower(6, 4), text=DenseTower(6, 4))
    with pytest.raises(InputError, match="no projections yet; train or refit"):
        Embedder(model, "image")
    with pytest.raises(InputError, match="it has no 'sound'"):
        Embedder(model, "sound")


def test_a_folder_of_the_hub_has_a_card_and_opens_again(model: DualEncoder, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    for _ in range(2):
        model.save_pretrained(tmp_path, metadata={"license": "mit", "datasets": ["birds"]})
    card = hub.ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "ccal"
    assert card.data.license == "mit"
    assert "image" in card.data.tags
    assert card.data.datasets == ["birds"]
    opened = DualEncoder.from_pretrained(tmp_path)
    torch.testing.assert_close(opened.encode("text", TEXTS), model.encode("text", TEXTS))


def test_texts_are_encoded_as_sentence_transformers_does(model: DualEncoder) -> None:
    encoder = SentenceEncoder(model)
    many = encoder.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    assert many.shape == (len(TEXTS), encoder.get_sentence_embedding_dimension())
    np.testing.assert_allclose(np.linalg.norm(many, axis=1), 1, rtol=1e-5)
    one = encoder.encode(TEXTS[1], convert_to_tensor=True)
    assert encoder.similarity(one[None], many).argmax().item() == 1
    with pytest.raises(InputError, match="reads texts as text"):
        SentenceEncoder(model, "image")


def test_the_client_of_openai_gets_embeddings(model: DualEncoder, index: Index) -> None:
    openai = pytest.importorskip("openai")
    server = Live(IndexCollection(index, model))
    try:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        answer = client.embeddings.create(model="any", input=TEXTS)
    finally:
        server.stop()
    found = [entry.embedding for entry in answer.data]
    expected = SentenceEncoder(model).encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_langchain_embeds_and_retrieves(model: DualEncoder, index: Index) -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.vectorstores import InMemoryVectorStore

    from ccal.adapters import CcalEmbeddings, CcalRetriever

    store = InMemoryVectorStore.from_texts(TEXTS, CcalEmbeddings(model))
    assert store.similarity_search("two red boats", k=1)[0].page_content == "two red boats"
    retriever = CcalRetriever(index, k=3, search={"where": {"year": {">=": 1992}}})
    found = retriever.invoke("a red bird")
    hits = index.search(text="a red bird", k=3, where={"year": {">=": 1992}})
    assert [document.id for document in found] == [hit.id for hit in hits]
    assert found[0].metadata["score"] == hits[0].score


def test_llama_index_embeds_and_retrieves(model: DualEncoder, index: Index) -> None:
    pytest.importorskip("llama_index.core")
    from ccal.adapters import CcalEmbedding, CcalNodeRetriever

    vectors = CcalEmbedding(model).get_text_embedding_batch(TEXTS)
    query = CcalEmbedding(model).get_query_embedding("a grey car")
    assert int(np.argmax(np.array(vectors) @ np.array(query))) == 5
    found = CcalNodeRetriever(index, k=3).retrieve("a red bird")
    hits = index.search(text="a red bird", k=3)
    assert [node.node.node_id for node in found] == [hit.id for hit in hits]
    assert found[0].score == hits[0].score


def picture(red: int) -> Any:
    return pytest.importorskip("PIL.Image").new("RGB", (8, 8), (red, 0, 0))


def png(red: int) -> bytes:
    content = io.BytesIO()
    picture(red).save(content, format="PNG")
    return content.getvalue()


def test_hugging_face_datasets_become_pairs(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {"image": [picture(9), picture(99)], "caption": [["dark", "darker"], ["light"]]}
    features = datasets.Features(
        image=datasets.Image(), caption=datasets.Sequence(datasets.Value("string"))
    )
    dataset = datasets.Dataset.from_dict(columns, features=features)
    pairs = pairs_from_rows(
        dataset, x="image", y="caption", images=tmp_path, names=("photo", "text")
    )
    assert pairs.names == ("photo", "text")
    assert pairs.column("text")[:] == ["dark", "darker", "light"]
    assert pairs.column("photo").files
    assert pairs.items("photo").tolist() == [0, 0, 1]
    assert list(pairs.group) == [0, 0, 1]  # type: ignore[arg-type]


def test_web_dataset_shards_become_pairs(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    shard = str(tmp_path / "shard-000.tar")
    with webdataset.TarWriter(shard) as writer:
        for number, text in enumerate(["dark", "light"]):
            writer.write({"__key__": str(number), "png": png(9 + 90 * number), "txt": text})
    rows = webdataset.WebDataset(shard, shardshuffle=False)
    pairs = pairs_from_rows(rows, x="png", y="txt", images=tmp_path / "photos")
    assert pairs.column("txt")[:] == ["dark", "light"]
    assert Path(pairs.column("png")[0]).read_bytes() == png(9)


def test_parquet_with_image_bytes_becomes_pairs(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"image": {"bytes": png(9), "path": None}, "text": "dark", "sound": [0.5, 1.0]}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "pairs.parquet")
    read = list(parquet_rows(tmp_path / "pairs.parquet"))
    pairs = pairs_from_rows(read, x="image", y="text", images=tmp_path)
    assert Path(pairs.column("image")[0]).suffix == ".png"
    numbers = pairs_from_rows(read, x="sound", y="text", images=tmp_path).column("sound")
    assert numbers[:].tolist() == [[0.5, 1.0]]
    with pytest.raises(InputError, match="Row 0 has no 'title'; it has image, text, sound"):
        pairs_from_rows(read, x="image", y="title", images=tmp_path)


def short_training(callback: Callback) -> list[dict[str, Any]]:
    """The records of a training of two epochs, of which a callback is told."""
    meaning = np.random.default_rng(0).normal(size=(120, 4))
    pairs = ccal.Pairs({"a": meaning, "b": meaning @ np.diag([1.0, 2.0, 3.0, 4.0])})
    settings = ccal.Settings(method="learned", max_epochs=2, batch_size=80, train_on_all=False)
    return ccal.train(
        settings, pairs[:80], pairs[80:], progress=False, callbacks=[callback]
    ).history


def test_callbacks_are_told_every_epoch() -> None:
    records: list[dict[str, Any]] = []

    class Collect:
        def add(self, record: dict[str, Any]) -> None:
            records.append(record)

        def close(self) -> None:
            records.append({"closed": True})

    history = short_training(Collect())
    assert records == [*history, {"closed": True}]


def test_tensorboard_is_a_callback(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    history = short_training(TensorBoard(tmp_path))
    read = events.EventAccumulator(str(tmp_path)).Reload()
    logged = {event.step: event.value for event in read.Scalars("loss")}
    assert logged == pytest.approx({record["epoch"]: record["loss"] for record in history})


def test_mlflow_has_the_epochs(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from ccal.adapters import MLflowCallback

    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = mlflow.create_experiment("test", artifact_location=tmp_path.as_uri())
    with mlflow.start_run(experiment_id=experiment) as run:
        history = short_training(MLflowCallback())
    logged = mlflow.tracking.MlflowClient().get_metric_history(run.info.run_id, "train/loss")
    assert [entry.value for entry in logged] == [record["loss"] for record in history]
    assert [entry.step for entry in logged] == [1, 2]


def test_wandb_has_the_epochs(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    from ccal.adapters import WandbCallback

    with wandb.init(mode="offline", project="test", dir=tmp_path) as run:
        history = short_training(WandbCallback())
        last = dict(run.summary)
    assert last["train/loss"] == history[-1]["loss"]
    assert last["train/epoch"] == 2
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.parametrize("library", ["ranx", "ir_measures"])
def test_run_files_are_read_by_other_libraries(library: str, tmp_path: Path) -> None:
    module = pytest.importorskip(library)
    torch.manual_seed(0)
    x = torch.randn(30, 5)
    y = x + 0.5 * torch.randn(30, 5)
    ours = ccal.evaluation.evaluate_embeddings(x, y, bootstrap=0).x_to_y.measures.mrr / 100
    run, judgements, *_ = ccal.runs.export_trec(tmp_path, x, y, k=30)
    if library == "ranx":
        qrels = module.Qrels.from_file(str(judgements), kind="trec")
        theirs = module.evaluate(qrels, module.Run.from_file(str(run), kind="trec"), "mrr")
    else:
        measure = module.parse_measure("RR")
        qrels = list(module.read_trec_qrels(str(judgements)))
        theirs = module.calc_aggregate([measure], qrels, module.read_trec_run(str(run)))[measure]
    assert theirs == pytest.approx(ours, abs=1e-6)
