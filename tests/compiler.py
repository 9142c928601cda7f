"""A mark for tests of torch.compile's default backend, which calls a C++ compiler."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["needs_cpp"]

needs_cpp = pytest.mark.skipif(
    not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++")),
    reason="torch.compile needs a C++ compiler, and there is none",
)
