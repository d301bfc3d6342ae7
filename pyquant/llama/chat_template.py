"""A conversation as the text that a model's chat template makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyquant.errors import ModelFileError
from pyquant.llama.model import Model

Message = Mapping[str, str]  # role: system, user or assistant; content


def render(model: Model, messages: Sequence[Message], name: str) -> str:
    """Write a conversation by the model's chat template, ready for the model's answer.

    The template is Jinja text from the model's file; it runs in a sandbox that cannot reach Python's objects.

    Raises ModelFileError: there is no template, it is no Jinja, or it refuses the messages.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source = model.chat_template()
    if source is None:
        raise ModelFileError(f"{model.path}: has no chat template; give a prompt without --chat")

    def refuse(message: str) -> str:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, indent=indent)
    environment.globals["raise_exception"] = refuse
    begin, end = model.vocabulary.begin_and_end()
    try:
        return environment.from_string(source).render(
            messages=list(messages), add_generation_prompt=True, bos_token=begin, eos_token=end
        )
    except Exception as error:  # a template can fail as any program can
        raise ModelFileError(f"{model.path}: its chat template fails for {name}: {error}") from None
