"""The story of an episode: its people, its sessions, and the dialogue that tells it."""
