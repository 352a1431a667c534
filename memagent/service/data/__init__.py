"""What the service stores and holds open: memories, keys, jobs, leases, responses, cursors."""
