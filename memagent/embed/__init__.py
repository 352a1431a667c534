"""Embedders: texts in, unit vectors out.

`static` holds the default: a table shipped in the wheel, numpy alone, about 0.1 ms a
text. `sentence_transformer` and `minilm` run a transformer behind an extra. `hashing`
knows no meaning and is for tests. `CachedEmbedder` wraps any of them. All of them fail
closed: `embed` gives one finite unit row for each text or raises `EmbeddingError`,
never a zero vector.
"""
