"""Recorded traffic, played against ways to scale, on paper: requests within their goal, and the GPU-hours for it."""
