"""The part of the API that speaks as OpenAI's does: chat, responses, models, embeddings."""
