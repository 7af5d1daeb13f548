"""What reads recordings of a run: snapshots of memory, traces, a step that is watched."""
