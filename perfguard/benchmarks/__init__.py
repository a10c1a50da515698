"""What is measured. `api`, `catalog` and `selection` are light; kernels, steps and models import torch (child only)."""
