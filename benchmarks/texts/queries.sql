CREATE TABLE IF NOT EXISTS measurement (
    id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    bits REAL DEFAULT 4.5,
    perplexity REAL CHECK (perplexity > 0),
    UNIQUE (model, bits)
);
INSERT INTO measurement (model, bits, perplexity) VALUES ('SmolLM2', 4.5, 17.31), ('it''s', 8, NULL);
SELECT m.model, COUNT(*) AS n, AVG(m.perplexity) FROM measurement AS m
    LEFT JOIN family f ON f.model = m.model AND f.size BETWEEN 100 AND 200
    WHERE m.bits < 8.0 OR m.model LIKE 'Smol%' AND m.perplexity IS NOT NULL
    GROUP BY m.model HAVING COUNT(*) > 1 ORDER BY n DESC, m.model LIMIT 10;
UPDATE measurement SET perplexity = perplexity * 1.5e-1, bits = bits + 1 WHERE id IN (1, 2, 3);
SELECT DISTINCT model FROM measurement WHERE id = (SELECT MAX(id) FROM measurement WHERE bits <> 4);
DELETE FROM measurement WHERE perplexity IS NULL;
