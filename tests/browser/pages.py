"""What the tests of the page share: the server as a process, and questions to the page."""

import re
import subprocess
import sys

WAIT = 20_000  # milliseconds: a bound, and no measure of speed


class Watch:
    """`dokl watch --web` as a process; `address` is what it printed."""

    def __init__(self, path, port=0):
        words = [sys.executable, "-m", "dokl", "watch", str(path), "--web", "--every", "0.5"]
        self.process = subprocess.Popen([*words, "--port", str(port)], stdout=subprocess.PIPE)
        line = self.process.stdout.readline().decode()
        self.address = re.search(r"http://\S+/", line).group()

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=20)


def node(page, name):
    return page.locator(f'.node[data-name="{name}"]')


def fill(page, name):
    """The colour of a node, as it is on the screen."""
    return node(page, name).locator(".dot").evaluate("it => getComputedStyle(it).fill")


def wait(page, condition, *arguments):
    page.wait_for_function(condition, arg=list(arguments), timeout=WAIT)


STATE = """([name, state]) => ['.node', 'tr'].every((kind) =>
    document.querySelector(`${kind}[data-name="${name}"]`)?.dataset.state === state)"""
