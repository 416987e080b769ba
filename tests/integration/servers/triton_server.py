"""A real Triton with two models, whose GPU is a stand-in that sleeps: `triton_server.py HTTP GRPC METRICS`, ports.

`plain` takes one request at a time, and `batched` up to eight at once. Runs in the environment of lab/server_env.py.
"""

import sys
import time

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

REQUEST_S = 0.2
MOST_AT_ONCE = 8


@batch
def batched(x):
    time.sleep(REQUEST_S)
    return [x]


def plain(requests):
    time.sleep(REQUEST_S * len(requests))
    return [{"y": request.data["x"]} for request in requests]


def main(http, grpc, metrics):
    config = TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics, exit_timeout_secs=1)
    tensors = [Tensor(name="x", dtype=np.float32, shape=(1,))], [Tensor(name="y", dtype=np.float32, shape=(1,))]
    with Triton(config=config, workspace="workspace") as triton:
        triton.bind("plain", plain, *tensors, config=ModelConfig(batching=False))
        batcher = DynamicBatcher(max_queue_delay_microseconds=1000)
        triton.bind("batched", batched, *tensors, config=ModelConfig(max_batch_size=MOST_AT_ONCE, batcher=batcher))
        triton.serve()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
