"""PROOF"""
import os, time, sys
from pathlib import Path
import numpy as np
from flwr.serverapp import ServerApp, Grid
from flwr.app import Context
from fedcap.federation.flower.transport import FlowerTransport
from fedcap.federation.flower.sealing import Seal
from fedcap.federation.messages import Order, fresh_nonce
app = ServerApp()
@app.main()
def main(grid: Grid, context: Context) -> None:
    d = Path(os.environ["FEDCAP_OPERATOR"])
    t = FlowerTransport(grid, 1000000, Seal(d/"server.key", d/"server.crt"))
    while len(n := t.nodes()) < 2: time.sleep(0.5)
    print("NODES", n, file=open(d/"out.txt","a"))
    for r in range(5):
        s = time.time()
        x = t.exchange({c: Order("train", r, fresh_nonce(), "p", np.ones((1, 100000), np.float32)*i) for i, c in enumerate(n)}, 30)
        print("ROUND", r, time.time()-s, {c: (getattr(a,"update",None), a) for c, a in x.items()}, file=open(d/"out.txt","a"))
