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
PROMPTS = """{"prompt": "the rain in", "name": "rain"}
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
TEXTS = {
    "grammar.lark": LARK, "grammar.gbnf": GBNF, "schema.json": SCHEMA, "prompts.jsonl": PROMPTS,
    "recipe.toml": RECIPE, "types.txt": TYPES,
}  # fmt: skip
