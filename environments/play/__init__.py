"""Playing an episode: rollouts, snapshots, and scoring the members of a group alike."""
