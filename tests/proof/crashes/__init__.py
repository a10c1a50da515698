"""What perfguard keeps and leaves behind when it is killed, suspended, out of disk, or its clock jumps."""
