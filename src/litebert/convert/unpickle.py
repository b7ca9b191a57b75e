"""The child process that reads a foreign pickle:
python -m litebert.convert.unpickle SOURCE.bin TARGET.safetensors

No other code opens a pickle, and this one never runs in the process of the user's command. It uses
torch's loader that builds tensors and plain containers and refuses everything else.
"""

import pickle
import sys

import torch
from safetensors.torch import save_file


def unpickle(source: str, target: str) -> None:
    try:
        weights = torch.load(source, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # torch's text recommends to load them all the same
        sys.exit("it holds other things than tensors, which are never loaded; save its state_dict")
    if not isinstance(weights, dict) or not all(
        isinstance(tensor, torch.Tensor) for tensor in weights.values()
    ):
        sys.exit("it should hold a dict of tensors by name")
    # tied weights share memory in a pickle and must not in safetensors
    save_file(
        {str(name): tensor.detach().clone().contiguous() for name, tensor in weights.items()},
        target,
    )


if __name__ == "__main__":
    try:
        unpickle(sys.argv[1], sys.argv[2])
    except Exception as error:
        sys.exit(str(error).strip().split("\n")[0][:300])
