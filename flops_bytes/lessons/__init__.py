"""What the book's pages quote: models, the trainer, measuring, byte-pair encoding. Most of it needs torch."""
