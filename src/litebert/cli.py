"""The command line: one table of commands. A command's module is imported when it runs, so `--help`
is instant.

Exit codes: 0 success, 2 wrong usage, 3 bad data, 4 diverged, 75 interrupted and resumable, 1
anything else.
"""

import atexit
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from litebert import __version__
from litebert.checks import clip, shorten
from litebert.errors import LitebertError
from litebert.terminal import write_stderr

_INTERRUPTED = 75

# command → (module:function in commands/, what it does)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "demo:demo",
        "From raw text to predictions on a small corpus, in minutes on two cores.",
    ),
    "info": ("about:info", "Parameters, FLOPs per token and memory of a preset."),
    "doctor": ("about:doctor", "What this machine can do, and what is missing."),
    "models": ("about:models", "The models that come with litebert, and their scores."),
    "tokenizer train": ("tokenizer:train", "Train a vocabulary on a corpus."),
    "data build": ("data:build", "Turn a corpus into shards of token ids."),
    "data show": ("data:show", "Print training examples as a person would read them."),
    "pretrain": ("pretrain:pretrain", "Pretrain an encoder on shards."),
    "finetune": ("finetune:finetune", "Fine-tune a model for GLUE, SQuAD, RACE or your own files."),
    "finetune embed": (
        "finetune:embed",
        "Tune embeddings on pairs, triplets, NLI, texts or a teacher's vectors.",
    ),
    "evaluate": ("evaluate:evaluate", "Score a fine-tuned model on a split of a task."),
    "evaluate masked": (
        "evaluate_pretrained:masked",
        "Masked-token loss of any model on any text.",
    ),
    "evaluate blimp": (
        "evaluate_pretrained:blimp",
        "Minimal pairs of grammar, without fine-tuning.",
    ),
    "evaluate similarity": (
        "evaluate_pretrained:similarity",
        "Cosines of any model's vectors against scored pairs.",
    ),
    "evaluate retrieval": (
        "evaluate_pretrained:retrieval",
        "Find documents by any model's vectors, beside BM25.",
    ),
    "ensemble": ("evaluate:ensemble", "Average fine-tuned models, selected on dev."),
    "predict": ("predict:predict", "Predict for every row of a file of any size."),
    "fill": ("verbs:fill", "Predict the tokens behind [MASK]."),
    "embed": ("verbs:embed", "Turn texts into vectors."),
    "classify": ("verbs:classify", "Label texts with a fine-tuned model."),
    "pair": ("verbs:pair", "Label a pair of texts."),
    "regress": ("verbs:regress", "Score a text, or a pair of texts, with a number."),
    "choose": ("verbs:choose", "Choose the right one of several options."),
    "answer": ("verbs:answer", "Find the answer to a question in a text."),
    "tag": ("verbs:tag", "Tag the words of texts."),
    "serve": ("serve:serve", "Serve models over HTTP."),
    "report": ("report:report", "Write one HTML page about a run, or several side by side."),
    "lab list": ("lab:list_studies", "The studies: the paper's tables, and more."),
    "lab run": ("lab:run", "Run studies: rows × seeds, whatever is missing."),
    "lab table": ("lab:table", "A study's table: Markdown, CSV or LaTeX."),
    "lab plot": ("lab:plot", "A study's picture: SVG and PNG."),
    "lab pack": ("lab:pack", "A study's results without its weights."),
    "lab unpack": ("lab:unpack", "Packed results back into a study's folder."),
    "convert": (
        "convert:convert",
        "Convert weights from and to Hugging Face, and from Google's checkpoints.",
    ),
    "export": ("export:export", "Export a model for ONNX Runtime or OpenVINO, in float32 or int8."),
}


def main(args: Sequence[str] | None = None) -> None:
    """Run the command that `args` name and exit with its code."""
    interrupts = _Interrupts()
    # Threads that spin while they wait for one without a core slow each other down; OpenMP reads
    # this when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        interrupts.catch()
        if isinstance(sys.stdout, io.TextIOWrapper):  # texts may hold lone surrogates
            sys.stdout.reconfigure(errors="backslashreplace")
        code = run(sys.argv[1:] if args is None else list(args))
        if interrupts.raised and code:
            code = _INTERRUPTED
    except KeyboardInterrupt:  # a second one, while the first was reported
        code = _INTERRUPTED
    except Exception:
        if not interrupts.raised:
            raise
        code = _INTERRUPTED  # C++ code turned the interrupt into an error of its own
    finally:
        interrupts.over = True  # no call in between, so no handler runs before this
    interrupts.ignore()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or _computes():
        _leave(code)
    sys.exit(code)


def _computes() -> bool:
    """Whether an interrupted service still loads or computes in a thread of its own."""
    import threading

    return any(thread.name.startswith("litebert-") for thread in threading.enumerate())


def _leave(code: int) -> None:
    """End at once: while C++ objects are destroyed, gloo sometimes aborts a finished rank, and
    torch a thread that computes."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(args: list[str]) -> int:
    """Run a command; its exit code."""
    if not args or args[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if args[0] in ("-V", "--version"):
        print(f"litebert {__version__}")
        return 0
    name, rest = _find(args)
    if name is None:
        return _unknown_command(args)
    try:
        _call(name, rest)
    except LitebertError as error:
        write_stderr(f"litebert {name}: {_clipped(str(error), args)}")
        return error.exit_code
    except KeyboardInterrupt:
        write_stderr(f"litebert {name}: interrupted; the same command again resumes")
        return _INTERRUPTED
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            write_stderr(f"litebert {name}: {_too_long(error.filename)}")
            return 2
        if not isinstance(error, BrokenPipeError):
            raise
        sys.stderr.close()  # the reader of our output has gone
        return 1
    except SystemExit as exit:  # how tyro ends after --help or wrong flags
        return exit.code if isinstance(exit.code, int) else 1
    return 0


def _call(name: str, args: list[str]) -> None:
    """Run a command with its arguments; tyro is imported for those that are not plain."""
    command = _load(name)
    from litebert.commands.marks import read_plain

    plain = read_plain(command, args)
    if plain is not None:
        command(*plain[0], **plain[1])
        return
    from litebert.commands.flags import call

    call(command, args, prog=f"litebert {name}")


def _too_long(path: object) -> str:
    return f"the path {shorten(path)} is longer than this system allows; name a shorter one"


def _clipped(message: str, args: list[str]) -> str:
    """The message, with arguments that are too long to be read, such as paths, by their
    beginning."""
    for argument in args:
        message = message.replace(argument, clip(argument, 400))
    return message


def _find(args: list[str]) -> tuple[str | None, list[str]]:
    """The command at the start of `args`, of one word or two, and the rest."""
    for words in (2, 1):
        name = " ".join(args[:words])
        if name in COMMANDS:
            return name, args[words:]
    return None, args


def _load(name: str) -> Callable[..., Any]:
    module, function = COMMANDS[name][0].split(":")
    loaded: Callable[..., Any] = getattr(
        importlib.import_module(f"litebert.commands.{module}"), function
    )
    return loaded


def _overview() -> str:
    """What `litebert --help` prints."""
    width = max(map(len, COMMANDS))
    lines = [f"  litebert {name:<{width}}  {help}" for name, (_, help) in COMMANDS.items()]
    return "\n".join(
        [
            "litebert: ALBERT from raw text to predictions",
            "",
            *lines,
            "",
            "litebert COMMAND --help explains every flag.",
        ]
    )


def _unknown_command(args: list[str]) -> int:
    """Print what is wrong with an unknown command; the exit code."""
    import difflib  # here: `main` is to catch signals as early as it can

    name = args[0]
    family = [command for command in COMMANDS if command.split()[0] == name]
    if family:
        write_stderr(f"litebert {name}: choose one of: {', '.join(family)}")
    else:
        close = difflib.get_close_matches(name, [command.split()[0] for command in COMMANDS], n=1)
        meant = f"did you mean {shorten(close[0])}? " if close else ""
        write_stderr(
            f"litebert: there is no command {shorten(name)}; {meant}litebert --help lists them"
        )
    return 2


class _Interrupts:
    """While caught, SIGTERM and SIGINT raise KeyboardInterrupt, but not inside an import.

    A module that is half imported turns the exception into another error, now or later. There the
    signal is sent again a little later, and so is one whose exception Python had to ignore, as in
    a destructor. The interpreter's own start, before `main`, is out of reach.
    """

    _AGAIN_SECONDS = 0.05

    def __init__(self) -> None:
        self.over = False
        """Whether the exit code is settled: signals no longer change it."""
        self.raised = False
        """Whether KeyboardInterrupt was raised: an error after it is a consequence."""
        self._last = signal.SIGTERM
        self._report_ignored = sys.unraisablehook

    def catch(self) -> None:
        sys.unraisablehook = self._ignored
        signal.signal(signal.SIGALRM, self._send_again)
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, self._receive)

    def ignore(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.over:
            return
        self._last = signal.Signals(number)
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                signal.setitimer(signal.ITIMER_REAL, self._AGAIN_SECONDS)
                return
            frame = frame.f_back
        self.raised = True
        raise KeyboardInterrupt

    def _send_again(self, number: int, frame: FrameType | None) -> None:
        signal.raise_signal(self._last)  # to whoever handles it now: training saves first

    def _ignored(self, unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, self._AGAIN_SECONDS)
        else:
            self._report_ignored(unraisable)


if __name__ == "__main__":
    main()
