"""Journal entries without erased words, and the writing of them."""
