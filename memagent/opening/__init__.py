"""The parts that settings name: models, embedders, rerankers, designs, indexes, open stores.

No agents are made here; `memagent.build` adds them to an open store.
"""
