"""A task whose check hangs, eats memory, fails or ends its process, as an answer says."""

from __future__ import annotations

import os
import subprocess

from pyquant.generation.structured.task import Item, Verdict


class BadTask:
    name = "bad"
    engine = "llguidance"
    needs = ()

    def check(self, item: Item, answer: str) -> Verdict:
        if answer == "hang":
            while True:
                pass
        if answer == "hang below":
            subprocess.run(["sleep", "100"], check=True)
        if answer == "eat":
            bytearray(1 << 33)
        if answer == "fail":
            raise RuntimeError("no idea")
        if answer == "end":
            os._exit(3)
        if answer == "say yes":
            return True  # type: ignore[return-value]
        return Verdict(parses=True)
