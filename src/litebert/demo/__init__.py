"""litebert demo: from text to a fine-tuned model on a small corpus, in minutes on two cores."""

from litebert.demo.show import Show
from litebert.demo.walk import DemoSettings, run_demo

__all__ = ["DemoSettings", "Show", "run_demo"]
