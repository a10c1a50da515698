"""Files of other benchmark tools, read and written: bytes in, typed values out, and back; opens no file."""
