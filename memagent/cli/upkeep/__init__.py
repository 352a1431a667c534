"""The commands for the upkeep of a memory and of a store."""
