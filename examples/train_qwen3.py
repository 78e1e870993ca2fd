"""Trains a small Qwen3 on English text: plain PyTorch and Hugging Face, for any device.

    python examples/train_qwen3.py                     # on "neuron"
    python examples/train_qwen3.py --device cpu
    opentrn run --compare cpu examples/train_qwen3.py  # both, side by side, with a report

The text is the help of Python's own language reference, which every CPython ships; a token is a byte.
"""

import argparse
import os
import time
from pydoc_data.topics import topics

from transformers import Qwen3Config, Qwen3ForCausalLM

import torch


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default=os.environ.get("DEVICE", "neuron"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: under torch.autocast")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def small_qwen3() -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=256,
            hidden_size=256,
            intermediate_size=896,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=32,
            max_position_embeddings=1024,
            tie_word_embeddings=False,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )


def main() -> None:
    args = arguments()
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    text = "\n".join(topics[name] for name in sorted(topics))
    data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()

    model = small_qwen3().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"Qwen3, {parameters / 1e6:.1f} M parameters, {args.dtype}, {len(data) / 1e3:.0f} kB of text, {device}",
        flush=True,
    )

    batches = torch.Generator().manual_seed(args.seed)
    started, tokens = time.perf_counter(), 0
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(data) - args.seq, (args.batch,), generator=batches)
        batch = torch.stack([data[s : s + args.seq] for s in starts.tolist()]).to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens += batch.numel()
        if step == 1 or step % 10 == 0:
            value = loss.item()
            rate = tokens / (time.perf_counter() - started)
            print(f"step {step:3d}  loss {value:.4f}  {rate:,.0f} tokens/s", flush=True)


if __name__ == "__main__":
    main()
