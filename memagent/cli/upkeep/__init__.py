<<<<<<< HEAD
"""The commands for the upkeep of a memory and of a store."""
=======
"""Commands that look after a store: doctor, backups, erasure and quarantine."""
>>>>>>> main
