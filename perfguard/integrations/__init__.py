"""Other systems: GitHub, and the files of other tools. Only `cli` enters."""
