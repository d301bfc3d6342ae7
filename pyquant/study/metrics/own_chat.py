"""Answers of a base to some questions, which models are measured on."""

from __future__ import annotations

from pyquant.evaluate.bundled import own_chat
from pyquant.files.output_file import write_bytes
from pyquant.llama.model import Model
from pyquant.study.metric import Metric
from pyquant.study.task import Measured, Progress, Task


class OwnChat(Metric):
    """Writes conversations, as `pyquant compare --chat` reads them."""

    name = "own_chat"
    version = 1
    unit = "prerequisite"

    def run(self, task: Task, threads: int | None, progress: Progress) -> list[Measured]:
        (file,) = task.files
        with Model(task.model) as model:
            chat = own_chat(model, threads)
        write_bytes(file, chat.to_jsonl(), sources=[], force=True)
        return [Measured({"n_conversations": len(chat.conversations), "sha256": chat.sha256})]
