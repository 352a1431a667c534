"""Questions about a world, with exact answers and evidence."""
