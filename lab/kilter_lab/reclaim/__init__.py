"""Experiments on proactive reclaim: switching between apps, and what a start costs."""
