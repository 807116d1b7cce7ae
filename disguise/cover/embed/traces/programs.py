"""The scripted user of Mosh, and both ends of what is like a game, for traces/record."""

import fcntl
import os
import pty
import random
import select
import signal
import socket
import struct
import sys
import termios
import time

SERVER = ("10.0.0.2", 27015)
KINDS = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM}


def shell(key: str, seconds: float = 95) -> None:
    """Type into mosh-client as a person does: words with pauses, and a pasted line."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        os.environ.update(MOSH_KEY=key, TERM="xterm-256color")
        os.execvp("mosh-client", ["mosh-client", "10.0.0.2", "60001"])
    draw = random.Random(7)
    end = time.monotonic() + seconds

    def rest(duration: float) -> None:
        until = time.monotonic() + duration
        while (left := until - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                try:
                    os.read(terminal, 65536)
                except OSError:
                    return

    def type_line(line: str) -> None:
        for letter in line + "\r":
            os.write(terminal, letter.encode())
            rest(draw.lognormvariate(-1.9, 0.5))

    rest(1.5)
    paste = "".join(draw.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/", k=240))
    os.write(terminal, f"TOKEN={paste}\r".encode())
    lines = ["ls -l /etc | head -30", "cd /usr/share", "du -s * 2>/dev/null | sort -n | tail", "cat /etc/services | less", "q", "date",
             "for i in 1 2 3 4 5; do uptime; sleep 1; done", "grep -r locale /etc/default", "ps aux | head -40", "echo done"]
    while time.monotonic() < end:
        for line in lines:
            rest(draw.uniform(0.5, 4))
            type_line(line)
            if time.monotonic() > end:
                break
    os.write(terminal, b"\x03exit\r")
    rest(1)
    os.kill(pid, signal.SIGTERM)


def game_client(transport: str, seconds: float = 60, rate: float = 30) -> None:
    """Log in, and send the player's state 30 times a second: a number, and 140 to 190 random bytes."""
    draw = random.Random(8)
    with socket.socket(socket.AF_INET, KINDS[transport]) as s:
        s.connect(SERVER)
        if transport == "tcp":
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.send(struct.pack("!4sI", b"GAME", 0) + draw.randbytes(400))
        began = time.monotonic()
        for number in range(int(seconds * rate)):
            time.sleep(max(0, began + number / rate - time.monotonic()))
            s.send(struct.pack("!4sI", b"GAME", number) + draw.randbytes(draw.randint(140, 190)))
            while select.select([s], [], [], 0)[0]:
                s.recv(2048)


def game_server(transport: str, seconds: float = 61, rate: float = 20) -> None:
    """Send the state of the world 20 times a second to the player: a number, and 124 to 504 random bytes."""
    draw = random.Random(9)
    with socket.socket(socket.AF_INET, KINDS[transport]) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(SERVER)
        if transport == "tcp":
            s.listen()
            s, _ = s.accept()
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.recv(2048)
        else:
            s.connect(s.recvfrom(2048)[1])
        began = time.monotonic()
        for number in range(int(seconds * rate)):
            while (left := began + number / rate - time.monotonic()) > 0:
                if select.select([s], [], [], left)[0] and not s.recv(2048):
                    return
            size = 124 + int(min(draw.expovariate(1 / 80), 380))
            s.send(struct.pack("!4sI", b"GAME", number) + draw.randbytes(size))


if __name__ == "__main__":
    {"shell": shell, "game-client": game_client, "game-server": game_server}[sys.argv[1]](*sys.argv[2:])
