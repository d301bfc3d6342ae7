"""JSON schemas: what the engine reads otherwise than JSON Schema has it is written so that both agree."""
