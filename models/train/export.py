"""Writes a trained model as a Hugging Face folder: F16 safetensors, configs, tokenizer, model card."""

import json
import struct

import torch

from data import TOKENIZER
from tokenizer import BEGIN, END, PAD


def write_safetensors(path, tensors):
    """tensors: {name: f16 tensor}. Format: u64 header length, JSON header padded to 8 bytes, then the data."""
    header, offset = {'__metadata__': {'format': 'pt'}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 2
        header[name] = {'dtype': 'F16', 'shape': list(tensor.shape), 'data_offsets': [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().numpy().tobytes())


@torch.no_grad()
def round_to_f16(model):
    """The weights as they are stored; also returns them by name."""
    tensors = {name: tensor.detach().cpu().half() for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return tensors


def export(model, folder, card):
    """Rounds the model's weights to f16 in place and writes the folder; card: the text of README.md."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = round_to_f16(model)
    write_safetensors(folder / 'model.safetensors', tensors)
    special = {f'{name}_token_id': TOKENIZER.ids[token] for name, token in (('bos', BEGIN), ('eos', END), ('pad', PAD))}
    config = {**model.config, **special, 'torch_dtype': 'float16'}
    for name, value in (('config.json', config), ('generation_config.json', {**special, 'do_sample': False})):
        (folder / name).write_text(json.dumps(value, indent=2) + '\n')
    TOKENIZER.write(folder)
    (folder / 'README.md').write_text(card)
