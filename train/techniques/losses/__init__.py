"""Techniques that change the loss: bounds of the clip, and further terms."""
