"""Texts that people write for pyquant: grammars, prompts, types of tensors."""

LARK = r"""start: value
value: object | "[" (value ("," value)*)? "]" | NUMBER | STRING | "true"~1..2
object: "{" (STRING ":" value ("," STRING ":" value)*)? "}"
NUMBER: /-?[0-9]{1,9}(\.[0-9]+)?/
STRING: "\"" ("a".."z" | " ")* "\""
%import common.WS
%ignore WS
"""
GBNF = r"""root ::= value
value ::= object | "[" (value ("," value)*)? "]" | number | string
object ::= "{" (string ":" value ("," string ":" value)*)? "}"
number ::= "-"? [0-9]{1,9} ("." [0-9]+)?
string ::= "\"" [^"\\\x00-\x1f]* "\""
"""
SCHEMA = """{"type": "object", "properties": {
"name": {"type": "string", "maxLength": 12, "pattern": "^[a-z ]+$"},
"age": {"type": "integer", "minimum": 0, "maximum": 150}, "in": {"enum": ["hen", "rain", 3]},
"list": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1, "maxItems": 4}},
"required": ["name", "age"], "additionalProperties": false, "$defs": {"x": {"anyOf": [{"type": "null"},
{"type": "number", "multipleOf": 0.5}, {"const": true}]}}}"""
PROMPTS = """{"messages": [{"role": "user", "content": [{"type": "text", "text": "hen"}]}], "tools": [{}]}
{"prompt": "the rain in", "name": "rain"}
{"messages": [{"role": "system", "content": "hen"}, {"role": "user", "content": "the \\u00e9"}]}
"""
RECIPE = """version = 1
base = "Q4_K_M"
n_bytes = 100000
kld = 0.25
kld_error = 1e-3

[tensors]
"blk.0.attn_q.weight" = { type = "Q4_0", bits = 4.5, share = 0.5, sensitivity = 1.5 }
"blk.0.ffn_down.weight" = "Q8_0"
"""
TYPES = """attn_v=q8_0 blk.0.ffn_down=q5_0
^output[.]weight$=q8_0 attn_k=q4_1
"""
WORDS = """A: "a".."f"+
B: /[0-9]{1,4}/
pair{x}: x ":" x
"""
IMPORTING = """%import .words (A, B)
start: A (B A)*
"""
REGEX = r"(?i)[a-z]{1,8}(-[0-9]+)*(\.(com|org))?|\"[^\"\\]*\"|é+"
JINJA = """{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- for message in messages %}{% set said = message.content if message.content is string else '' %}
{{- '<|' ~ message.role | upper ~ '|>' + said | trim + eos_token }}
{%- for part in message.content if part is mapping %}{{ part['text'] }}{% endfor %}
{%- for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}
{%- endfor %}{% macro ask(name) %}<|{{ name }}|>{% endmacro %}
{%- if add_generation_prompt %}{{ ask('assistant') }}{{ strftime_now('%d %b %Y')[:0] }}{% endif %}"""
GENERATING = """title = "Generates"
models = ["../model.gguf"]
measure = ["size", "drafting", "structured"]
ctx = 32
chunks = 3
[drafting]
sorts = ["code"]
prompt = 8
new = 8
texts = 2
rounds = 1
confirm = 1
turns = 1
[structured]
tasks = ["arithmetic"]
techniques = ["free", "grammar"]
lengths = [4, 10]
samples = 2
[[quantizer]]
mode = "ggml:Q4_0"
"""
TEXTS = {
    "words.lark": WORDS, "importing.lark": IMPORTING, "regex.txt": REGEX, "template.jinja": JINJA,
    "generating.toml": GENERATING,
    "grammar.lark": LARK, "grammar.gbnf": GBNF, "schema.json": SCHEMA, "prompts.jsonl": PROMPTS,
    "recipe.toml": RECIPE, "types.txt": TYPES,
}  # fmt: skip
