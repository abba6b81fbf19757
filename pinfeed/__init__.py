"""pinfeed: the training sample of the image, and the feed that keeps its GPU busy.

`pinfeed train` on the command line; from Python:

    from pinfeed.cli import main
    code = main(["train", "--data", "fashion-mnist", "--epochs", "5", "--out", "runs/first"])
"""

__version__ = "0.1.0"
