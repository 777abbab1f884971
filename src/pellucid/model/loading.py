"""Opening models: folders, hub names, GGUF files and ready model objects, with one clear sentence for all that can go
wrong."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from pellucid.errors import ModelError, OutOfMemory, listing
from pellucid.model import fewer_heads
from pellucid.model.attention import uses_interface

HEADS: dict[str, str] = {
    "none": "AutoModel",
    "lm": "AutoModelForCausalLM",
    "mlm": "AutoModelForMaskedLM",
    "classifier": "AutoModelForSequenceClassification",
    "qa": "AutoModelForQuestionAnswering",
    "tagger": "AutoModelForTokenClassification",
    "seq2seq": "AutoModelForSeq2SeqLM",
}
"""Heads that a model may be opened with, and transformers' class for each."""

_TOKENIZER_FILES = ("tokenizer.json", "vocab*", "*.model", "*.spm", "merges.txt", "tekken.json")

_WHOLE: dict[str, Any] = {"missing_keys": []}
"""What transformers would tell of a network whose weights are all there."""

SETTINGS = {"fused": "sdpa", "eager": "eager"}
"""transformers' name for each of our attention settings."""

_ENDINGS = {
    "ForCausalLM": "lm",
    "LMHeadModel": "lm",
    "ForMaskedLM": "mlm",
    "ForSequenceClassification": "classifier",
    "ForQuestionAnswering": "qa",
    "ForQuestionAnsweringSimple": "qa",
    "ForTokenClassification": "tagger",
    "ForConditionalGeneration": "seq2seq",
    "MTModel": "seq2seq",
}


@dataclass(frozen=True)
class Opened:
    """A model as transformers opens it, and what to tell the user about it."""

    module: nn.Module
    tokenizer: Any
    attention: str
    name: str
    notes: tuple[str, ...] = ()


def open_object(
    module: Any,
    tokenizer: Any,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    attention: str | None = None,
) -> Opened:
    """A model object that the user built or loaded, as it is: with its own attention, device and precision."""
    setting = getattr(module.config, "_attn_implementation", None)
    names = {theirs: ours for ours, theirs in SETTINGS.items()}
    if setting not in names:
        raise ModelError(
            f"This model object uses {setting!r} attention; Pellucid reads 'sdpa' and 'eager'. "
            "Call model.set_attn_implementation('sdpa') on it first."
        )
    reason = why_not_fused(type(module), module.config) if names[setting] == "fused" else None
    if reason is not None:
        raise ModelError(
            f"{type(module).__name__} cannot be read with fused attention: {reason}. Load it with "
            "attn_implementation='eager'."
        )
    asked = {"device": device and torch.device(device).type, "dtype": dtype, "attention": attention}
    has = {"device": module.device.type, "dtype": module.dtype, "attention": names[setting]}
    for option, value in asked.items():
        if value is not None and value != has[option]:
            raise ModelError(
                f"A model object is opened as it is, and this one has {option} {has[option]!s}, not {value!s}; change "
                "the object before you pass it, or load from its folder."
            )
    name = getattr(module.config, "_name_or_path", "") or type(module).__name__
    return Opened(module.eval(), tokenizer, names[setting], name)


def open_source(
    source: str | Path,
    *,
    head: str,
    device: str | torch.device | None,
    dtype: torch.dtype | None,
    attention: str,
    allow_pickle: bool,
    new_head: bool,
    tokenizer: Any,
) -> Opened:
    """A model from a folder, a GGUF file or the Hugging Face hub."""
    if attention not in SETTINGS:
        raise ModelError(f"There is no attention setting {attention!r}; use 'fused' or 'eager'.")
    if head not in ("auto", *HEADS):
        raise ModelError(f"There is no head called {head!r}; the heads are auto, {listing(HEADS)}.")
    device = usable(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    name, source = str(source), _local(source)
    with _plain_errors(name), quiet():
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
    if isinstance(source, Path):
        _check_weights(source, allow_pickle=allow_pickle)
    cls, chosen = _class_for(config, head, name)
    notes: list[str] = []
    reason = why_not_fused(cls, config) if attention == "fused" else None
    if reason is not None:
        attention = "eager"
        notes.append(f"runs with eager attention: {reason}")
    options: dict[str, Any] = {
        "config": config,
        "dtype": dtype or (torch.float32 if device.type == "cpu" or name.startswith("zoo:") else "auto"),
        "attn_implementation": SETTINGS[attention],
        "use_safetensors": None if allow_pickle else True,
        "trust_remote_code": False,
    }
    fewer = fewer_heads.read(source) if isinstance(source, Path) else None
    with _plain_errors(name), quiet():
        if fewer is not None and fewer.reason and isinstance(source, Path):
            kind, setting = options["dtype"], options["attn_implementation"]
            module, info = fewer_heads.build(cls, config, source, fewer, dtype=kind, attention=setting), _WHOLE
        else:
            module, info = cls.from_pretrained(source, output_loading_info=True, **options)
        module = module.to(device)
    if fewer is not None:
        fewer_heads.hold(module, fewer)
    notes.extend(_check_complete(module, info["missing_keys"], name, chosen, new_head=new_head))
    if tokenizer is None:
        tokenizer, reason = _open_tokenizer(source)
        if reason is not None:
            notes.append(f"its tokenizer could not be opened: {reason}")
    return Opened(module.eval(), tokenizer, attention, name, tuple(notes))


def usable(device: str | torch.device) -> torch.device:
    """The device, if something can be put there."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"The device {str(device)!r} cannot be used here ({reason}); try 'cpu'.") from None


def _local(source: str | Path) -> str | Path:
    """A path where the source is one, with GGUF files converted and zoo:NAME looked up; otherwise a hub name."""
    if str(source).startswith("zoo:"):
        from pellucid import zoo

        return zoo.path(str(source).removeprefix("zoo:"))
    path = Path(source).expanduser()
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise ModelError(f"There is no file {str(source)!r}; check the path of the GGUF file.")
        return _converted(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            found = listing(sorted(item.name for item in path.iterdir()))
            inside = sorted(path.glob("checkpoints/*/config.json"), key=lambda file: (len(file.parent.name), file))
            hint = f" Did you mean {str(inside[-1].parent)!r}?" if inside else ""
            if (path / "store.json").is_file():
                hint = " It is a store of activations: Store.open reads it."
            raise ModelError(
                f"The folder {str(source)!r} has no config.json, so it is not a complete model; it contains "
                f"{found}.{hint}"
            )
        return path
    if path.is_file():
        raise ModelError(
            f"{str(source)!r} is a file; give the folder that holds config.json and the weights, or a .gguf file."
        )
    text = str(source)
    if isinstance(source, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1 or "\\" in text:
        raise ModelError(f"There is no folder {text!r}; check the path.")
    return text


def _check_weights(folder: Path, *, allow_pickle: bool) -> None:
    """Raises where a folder's weights are missing, half copied, or stored as pickle."""
    safe = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            wanted = set(json.loads(index.read_text())["weight_map"].values())
        except (ValueError, TypeError, LookupError, AttributeError):
            raise ModelError(f"{str(index)!r} is damaged: it is not a list of weight files. Copy it again.") from None
        absent = sorted(wanted - {item.name for item in safe})
        if absent:
            raise ModelError(
                f"The folder {str(folder)!r} is half copied: {listing(absent)} of {len(wanted)} weight files are "
                "missing. Copy them again."
            )
    if safe:
        return
    pickled = sorted(item.name for item in folder.iterdir() if item.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"))
    if pickled and not allow_pickle:
        raise ModelError(
            f"The folder {str(folder)!r} has its weights only as pickle ({listing(pickled)}), which can run code "
            "when opened. "
            "Convert them to safetensors, or pass allow_pickle=True (--allow-pickle) if you trust where they come from."
        )
    if not pickled:
        raise ModelError(
            f"The folder {str(folder)!r} has a config.json but no weights (*.safetensors); copy the whole model."
        )


def _class_for(config: Any, head: str, name: str) -> tuple[Any, str]:
    """transformers' class for a configuration and head, and the head it has."""
    if head == "auto":
        named = (getattr(config, "architectures", None) or [""])[0]
        for other, auto in {**HEADS, "text": "AutoModelForTextEncoding"}.items():
            for cls in _classes(auto, config):
                if cls.__name__ == named:
                    return cls, "none" if other == "text" else other
        head = next((found for ending, found in _ENDINGS.items() if named.endswith(ending)), "none")
    found = _classes(HEADS[head], config)
    if not found:
        known = [other for other, auto in HEADS.items() if _classes(auto, config)]
        raise ModelError(
            f"{name!r} is a {config.model_type} model, which has no {head!r} head; it can be opened with "
            f"{listing(known)}."
        )
    return found[0], head


def _classes(auto: str, config: Any) -> tuple[Any, ...]:
    """transformers' classes for a configuration under one of its automatic names."""
    mapping = getattr(transformers, auto)._model_mapping
    found = mapping.get(type(config), ())
    return found if isinstance(found, tuple) else (found,)


def why_not_fused(cls: Any, config: Any) -> str | None:
    """Why a model can only be read with eager attention; None where fused attention will do."""
    if not getattr(cls, "_supports_sdpa", False):
        return "transformers has no fused attention for it"
    if not uses_interface(cls):
        return "it computes attention by itself, in a kernel that shows nothing"
    if getattr(config, "attn_logit_softcapping", None) is not None:
        return "the fused kernel leaves out the cap that this model puts on its attention scores"
    return None


def _check_complete(module: Any, missing: Any, name: str, head: str, *, new_head: bool) -> list[str]:
    """Raises where the checkpoint lacks weights: of the network itself, or of a head that was not asked for as new."""
    absent = sorted(key for key in missing if "pooler" not in key)
    if not absent:
        return []
    base = f"{module.base_model_prefix}."
    inner = [key for key in absent if key.startswith(base) or not hasattr(module, module.base_model_prefix)]
    if inner:
        raise ModelError(
            f"{name!r} is incomplete: {len(inner)} weights are not in its files "
            f"({listing(inner, most=3)}). Copy it again."
        )
    if new_head:
        return [f"{len(absent)} weights are not in the checkpoint and start untrained: {listing(absent, most=4)}"]
    raise ModelError(
        f"{name!r} has no weights for the head {head!r} ({listing(absent, most=3)} are missing). "
        "Open it with head='none', or pass new_head=True to start with an untrained head."
    )


def _open_tokenizer(source: str | Path) -> tuple[Any, str | None]:
    """The tokenizer beside a model; None where there is none (transformers would invent one), or with the reason."""
    if isinstance(source, Path) and not any(item for name in _TOKENIZER_FILES for item in source.glob(name)):
        return None, None
    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False), None
    except (OSError, ValueError, TypeError, KeyError, ImportError, AttributeError) as error:
        return None, " ".join(str(error).split())[:200]


def _converted(path: Path) -> Path:
    """The folder with a GGUF file's weights as safetensors, made on first use and kept in the cache."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    folder = cache_folder() / "gguf" / f"{path.stem}-{digest.hexdigest()[:16]}"
    if (folder / "config.json").is_file():
        return folder
    lacking = [package for package in ("gguf", "accelerate") if find_spec(package) is None]
    if lacking:
        raise ModelError(
            f"Opening a GGUF file needs {listing(lacking)}; install what is missing with: pip install 'pellucid[gguf]'."
        )
    with _plain_errors(str(path)), _gguf_errors(path), quiet():
        module = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    module = _unquantised(module)
    work = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    module.save_pretrained(work)
    tokenizer.save_pretrained(work)
    try:
        work.rename(folder)
    except OSError:  # another process finished the same conversion first
        if not (folder / "config.json").is_file():
            raise
    return folder


def _unquantised(module: Any) -> Any:
    """The same network without the marks of the file it came from, which would keep it from being saved."""
    settings = {name: value for name, value in module.config.to_dict().items() if name != "quantization_config"}
    fresh = type(module)(type(module.config)(**settings))
    fresh.load_state_dict(module.state_dict())
    return fresh


def cache_folder() -> Path:
    """Where converted models are kept: PELLUCID_CACHE, or the user's cache folder."""
    root = os.environ.get("PELLUCID_CACHE")
    return Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pellucid"


@contextmanager
def quiet() -> Generator[None]:
    """Keeps transformers and its hub from printing reports and bars of their own: we raise or note what matters."""
    from transformers.utils import logging as theirs

    hub = logging.getLogger("huggingface_hub")
    level, bars, hub_level = theirs.get_verbosity(), theirs.is_progress_bar_enabled(), hub.level
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        theirs.set_verbosity(level)
        hub.setLevel(hub_level)
        if bars:
            theirs.enable_progress_bar()


@contextmanager
def _gguf_errors(path: Path) -> Generator[None]:
    """Whatever the reader of GGUF files stumbles over, as one sentence."""
    try:
        yield
    except (struct.error, ValueError, IndexError, KeyError, TypeError, RuntimeError, NotImplementedError) as error:
        text = " ".join(str(error).split())
        raise ModelError(
            f"{str(path)!r} is damaged, or of a kind that transformers cannot read ({text[:200]})."
        ) from error


@contextmanager
def _plain_errors(name: str) -> Generator[None]:
    """Turns what transformers raises while opening a model into one sentence."""
    from safetensors import SafetensorError

    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise OutOfMemory(
            f"{name!r} does not fit into memory; use a smaller model, dtype bfloat16, or another device."
        ) from error
    except SafetensorError as error:
        raise ModelError(f"A weight file of {name!r} is damaged or half copied ({error}); copy it again.") from error
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        text = " ".join(str(error).split())
        if "trust_remote_code" in text or "custom code" in text:
            raise ModelError(
                f"{name!r} needs code from its own repository to run, and Pellucid never runs such code; "
                "load it yourself and pass the model object to Model.load."
            ) from error
        if isinstance(error, OSError) and not Path(name).exists():
            raise ModelError(
                f"{name!r} is not a folder here, and could not be fetched from the Hugging Face hub; check the "
                "name, the path and "
                "the connection."
            ) from error
        if "ignore_mismatched_sizes" in text:
            raise ModelError(
                f"The weights of {name!r} have other sizes than its config.json says; the two files belong to "
                "different models."
            ) from error
        raise ModelError(f"{name!r} could not be opened: {text[:300]}") from error
