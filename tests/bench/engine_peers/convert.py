"""Write the weights of a GGUF file as others want them: a folder for transformers, a bf16 GGUF.

Runs with the peers' interpreter: ``python convert.py FILE FOLDER``. The numbers are the same: what
the file holds, brought to bfloat16 once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from safetensors.torch import save_file


def write_folder(source: Path, target: Path) -> None:
    """What ``transformers`` and vLLM load, without a tokenizer."""
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16
    )
    target.mkdir(parents=True, exist_ok=True)
    tied = {"lm_head.weight"}
    tensors = {name: part for name, part in model.state_dict().items() if name not in tied}
    save_file(
        {name: part.clone().contiguous() for name, part in tensors.items()},
        target / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(target)


def write_gguf(source: Path, target: Path) -> None:
    """The same metadata, all matrices in bfloat16."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    kept = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")
    for name, field in reader.fields.items():
        if name.startswith(kept):
            continue
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, inner[-1] if inner else None)
    bf16 = gguf.GGMLQuantizationType.BF16
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, bf16), raw_dtype=bf16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(source: str, folder: str) -> None:
    """Write both."""
    write_folder(Path(source), Path(folder) / "hf")
    write_gguf(Path(source), Path(folder) / "bf16.gguf")


if __name__ == "__main__":
    main(*sys.argv[1:])
