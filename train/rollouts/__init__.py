"""Collecting a step of experience: rollouts, reruns, groups and grades."""
