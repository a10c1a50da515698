"""What is measured. `api`, `catalog` and `suites` are light; kernels, steps and models import torch (child only)."""
