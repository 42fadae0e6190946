"""The clients of `run.py`: many raw sockets that only count `data:` lines, in a process that is not measured.

    python benchmarks/front_end/client.py PORT --requests 1500 --tokens 66

Prints a line of JSON: the chunks received, without the closing one, and the seconds since the first request.
"""

import argparse
import json
import select
import socket
import time

_DATA = b"data: "
_END = b"\n0\r\n\r\n"  # the last chunk of a chunked body; inside JSON there is no bare line end


def connect(port: int, count: int) -> dict[int, socket.socket]:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    return {sock.fileno(): sock for sock in socks}


def request(tokens: int, prompts: int) -> bytes:
    body = {"prompt": [[1, 2, 3, 4]] * prompts, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    content = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(content) + content


def count_chunks(socks: dict[int, socket.socket], message: bytes) -> int:
    """Sends every request and reads every answer to its end."""
    poll = select.epoll()
    tails = dict.fromkeys(socks, b"")
    for number, sock in socks.items():
        sock.sendall(message)
        sock.setblocking(False)
        poll.register(number, select.EPOLLIN)
    count = 0
    while tails:
        for number, _ in poll.poll():
            data = socks[number].recv(1 << 16)
            seen = tails[number] + data
            count += seen.count(_DATA)
            tails[number] = seen[-5:]  # one byte less than either mark, so that nothing is counted twice
            if not data or seen.endswith(_END):
                poll.unregister(number)
                del tails[number]
    return count - len(socks)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--tokens", type=int, default=66)
    parser.add_argument("--prompts", type=int, default=1, help="prompts per request, all in one stream")
    arguments = parser.parse_args()
    socks = connect(arguments.port, arguments.requests)
    start = time.monotonic()
    chunks = count_chunks(socks, request(arguments.tokens, arguments.prompts))
    print(json.dumps({"chunks": chunks, "seconds": time.monotonic() - start}))


if __name__ == "__main__":
    main()
