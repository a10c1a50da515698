"""What trains: data, models, workers and their transports. Imports torch, so it runs in processes of its own."""
