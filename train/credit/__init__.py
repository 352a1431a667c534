"""From rewards to advantages, and from advantages to padded rows."""
