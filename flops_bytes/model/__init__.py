"""What a model is: its shapes, layers and parameters, the reader of config.json, and its FLOPs."""
