"""Loaded first by the fork server of a process that shares the cores: what it forks computes on one thread.

Two processes with two threads each, on two cores, would mostly wait for each other. The variable is taken away again
once torch has read it: a snippet finds the environment of a run like any other.
"""

import os

import torch  # noqa: F401

os.environ.pop("OMP_NUM_THREADS", None)
