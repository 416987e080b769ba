"""A pod of the benchmark: keeps its GPU busy for as long as the load balancer says, in datagrams of seconds.

It is ready, which is to accept connections, `--start` seconds after it began: as a server that loads a model.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time

from cuda import CudaError, Gpu  # type: ignore[import-not-found]  # of the sample service, beside it in the pod

# Of datagrams that wait: more would be work that the balancer has forgotten.
MOST_WAITING = 2


def accept(port: int) -> None:
    """Answer the kubelet's probe for ever."""
    with socket.create_server(("", port), backlog=16) as listener:
        while True:
            listener.accept()[0].close()


def play(gpu: Gpu, orders: socket.socket) -> None:
    """Work off one order after the other."""
    while True:
        waiting = [orders.recv(64)]
        orders.setblocking(False)
        try:
            while True:
                waiting.append(orders.recv(64))
        except BlockingIOError:
            orders.setblocking(True)
        for order in waiting[-MOST_WAITING:]:
            gpu.spin(float(order) * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--start", type=float, default=0.0, help="seconds until it is ready (default: 0)")
    arguments = parser.parse_args()
    try:
        gpu = Gpu()
        gpu.spin(1)
    except CudaError as error:
        sys.exit(f"player: {error}")
    orders = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    orders.bind(("", arguments.port))
    time.sleep(arguments.start)
    threading.Thread(target=accept, args=(arguments.port,), daemon=True).start()
    play(gpu, orders)


if __name__ == "__main__":
    main()
