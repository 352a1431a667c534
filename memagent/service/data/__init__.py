"""What the service stores: keys, jobs, leases, cached responses, cursors and exports."""
