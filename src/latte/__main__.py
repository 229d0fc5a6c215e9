"""``python -m latte``."""

try:
    from .cli import main
except KeyboardInterrupt:  # before there is a handler of ours
    import os

    os.write(2, b"latte: interrupted; nothing had begun\n")
    os._exit(130)

main()  # which has its own guard
