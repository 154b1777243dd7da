"""The steps that are put to the proof stand in modules of their own, which other processes import too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
