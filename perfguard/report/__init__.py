"""Results to text and bytes; writes no file."""
