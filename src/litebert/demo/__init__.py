"""litebert demo: the whole walk on a small corpus, in minutes on two cores.
 `corpus` reads and numbers the text, `eras` makes the task, `baselines` are what each number has to
beat, `place` is the folder, `show` prints, and `stations` is the walk through them.
"""

from litebert.demo.show import Show
from litebert.demo.stations import DemoSettings, walk

__all__ = ["DemoSettings", "Show", "walk"]
