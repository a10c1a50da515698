"""Operators that training steps may call instead of slower ones, built for the machine on first use; needs torch.

Only the child process and users' own programs import this room.
"""

from perfguard.kernels.focal_loss import sigmoid_focal_loss

__all__ = ["sigmoid_focal_loss"]
