"""What settings name, opened: models, embedders, rerankers, designs, indexes, and the store."""
