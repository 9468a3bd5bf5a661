"""What a model is, from config.json and headers alone. No torch."""
