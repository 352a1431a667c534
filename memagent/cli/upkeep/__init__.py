"""Commands that look after a store: doctor, backups, erasure and quarantine."""
