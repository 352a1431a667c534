"""The language of a world: its grammar as data, split in halves, and days in words."""
