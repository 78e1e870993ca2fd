"""Hugging Face models train and generate without one operator on the CPU, with the CPU's losses."""

import pytest

import torch

pytest.importorskip("transformers")

DEVICE = "neuron"
SIZES = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = SIZES | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}


def make(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if name == "qwen3":
        from transformers import Qwen3Config, Qwen3ForCausalLM

        return Qwen3ForCausalLM(Qwen3Config(**DECODER, head_dim=8))
    if name == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM

        return LlamaForCausalLM(LlamaConfig(**DECODER))
    if name == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(vocab_size=128, n_embd=32, n_layer=2, n_head=4, n_positions=64)
        config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
        return GPT2LMHeadModel(config)
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(**SIZES, intermediate_size=64, max_position_embeddings=64)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    return BertForMaskedLM(config)


def train(name: str, device: str, steps: int = 3) -> tuple[list[float], torch.nn.Module]:
    model = make(name).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    ids = torch.randint(0, 128, (2, 16)).to(device)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2", "bert"])
def test_training_gives_the_cpus_losses(name):
    expected, on_cpu = train(name, "cpu")
    actual, on_device = train(name, DEVICE)
    assert actual == pytest.approx(expected, rel=1e-5)
    for (key, a), (_, b) in zip(on_device.named_parameters(), on_cpu.named_parameters(), strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), rtol=1e-3, atol=1e-4, msg=key)


@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2"])
def test_generation_gives_the_cpus_tokens(name):
    prompt = torch.arange(12).reshape(2, 6)
    expected = make(name).eval().generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0)
    model = make(name).eval().to(DEVICE)
    actual = model.generate(prompt.to(DEVICE), max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert actual.tolist() == expected.tolist()
    sampled = model.generate(prompt.to(DEVICE), max_new_tokens=4, do_sample=True, top_k=20, top_p=0.9, pad_token_id=0)
    assert sampled.shape == (2, 10)


def test_bfloat16_autocast_trains():
    model = make("qwen3").to(DEVICE).train()
    ids = torch.arange(32, device=DEVICE).reshape(2, 16)
    with torch.autocast(DEVICE):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
