"""A step of experience: rollouts and reruns collected, scored and credited."""
