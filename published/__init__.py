"""What others measured on their GPUs: read from files at a commit, and held against what this library says."""
