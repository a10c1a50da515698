"""What is known of a machine: CPU, memory, software, state. Written by `host`, read by everybody."""
