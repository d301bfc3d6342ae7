"""Name the types of files: what `general.file_type` says of a model, by llama.cpp's numbers."""

from __future__ import annotations

from gguf import LlamaFileType

# By llama-quantize's names. gguf's own enumeration lacks Q2_0.
FILE_TYPES = {
    "F32": int(LlamaFileType.ALL_F32),
    **{
        type_.name.removeprefix("MOSTLY_"): int(type_)
        for type_ in LlamaFileType
        if type_.name.startswith("MOSTLY_")
    },
    "Q2_0": 41,
}
