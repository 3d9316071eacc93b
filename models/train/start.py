"""Initial weights, and the structured start: layer 0 looks back one to six tokens, layer 1 matches content.

Small models trained for minutes on one core don't find induction by themselves; with these weights they begin with it.
Nothing is frozen and the architecture is unchanged. Longer training doesn't need it.
"""

import math

import torch

from model import frequencies

OFFSETS = (1, 2, 3, 4, 5, 6)
# (a, b): a query whose a-th token back equals the key's b-th token back (0 is the token itself). The pairs are the
# distances at which questions and facts of data.py line up, without chat and with it. Neighbours share a key head.
PAIRS = ((0, 1), (1, 1), (1, 2), (2, 2), (3, 3), (4, 3), (4, 4), (5, 4))
FAST, SKIPPED = 3, 5  # frequencies that tell offsets apart; fast ones that content matching leaves alone
EMBEDDING_STD, OUTPUT_SCALE, SHARED = 0.7, 0.1, 0.5
WANTED_MAXIMUM = 0.35  # mean largest attention probability of layer 1
COPY_SCALE, HEAD_SCALE = 0.7, 0.05


def initialise(model):
    for name, p in model.named_parameters():
        if p.dim() < 2:
            continue
        std = 1 / math.sqrt(p.shape[1])
        if 'embed_tokens' in name:
            std = EMBEDDING_STD
        elif 'lm_head' in name or '.gate.' in name:
            std = 0.02
        elif 'o_proj' in name or 'down_proj' in name:
            std *= OUTPUT_SCALE  # else layer 0 drowns the embeddings
        torch.nn.init.normal_(p, std=std)


def orthonormal(rows, columns):
    """rows x columns with orthonormal rows (rows <= columns)."""
    return torch.linalg.qr(torch.randn(columns, rows))[0].T


def blind_to(u, rows):
    """rows x len(u) with orthonormal rows, all of them orthogonal to u."""
    return torch.linalg.qr(torch.cat([u[:, None], torch.randn(len(u), rows)], 1))[0][:, 1:].T


def phase_vector(offset, theta, dim, interleaved):
    """A vector whose RoPE score with phase_vector(0) is largest `offset` tokens back; only the fastest frequencies."""
    angles = -offset * frequencies(theta, dim)
    cos, sin = angles.cos(), angles.sin()
    cos[FAST:], sin[FAST:] = 0, 0
    return torch.stack([cos, sin], -1).flatten() if interleaved else torch.cat([cos, sin])


@torch.no_grad()
def structured_start(model, sample_ids):
    """sample_ids: (B, T) tokens on which layer 1's sharpness is set."""
    u = share_direction(model)
    plant_matching(model, u, plant_look_back(model, u))
    plant_copying(model, u)
    sharpen(model, sample_ids)


def share_direction(model):
    """Gives every embedding a share of one direction, from which layer 0 draws its constant keys and queries."""
    embeddings = model.model.embed_tokens.weight
    hidden = embeddings.shape[1]
    u = orthonormal(1, hidden)[0]
    embeddings -= embeddings @ u[:, None] * u
    embeddings += EMBEDDING_STD * math.sqrt(hidden) * SHARED * u
    return u


def shapes(config):
    """-> latent attention?, heads, and the sizes of a head's query, its rotary part and its value"""
    if config['model_type'] == 'deepseek_v3':
        rope = config['qk_rope_head_dim']
        return True, config['num_attention_heads'], config['qk_nope_head_dim'] + rope, rope, config['v_head_dim']
    return False, config['num_attention_heads'], config['head_dim'], config['head_dim'], config['head_dim']


def plant_look_back(model, u):
    """Layer 0's heads copy the token at each offset into a space of its own.

    -> {offset: (value, hidden) reader of that space}; 0 reads the token itself, seen as the spaces hold it.
    """
    config, attention = model.config, model.model.layers[0].self_attn
    latent, heads, dim, rope, value = shapes(config)
    hidden, theta = config['hidden_size'], config['rope_theta']
    reader = u / (math.sqrt(hidden) * SHARED / math.sqrt(1 + SHARED ** 2))  # 1 on a normalised embedding
    # The score falls by 5 one token beside the wanted offset.
    strength = math.sqrt(5 * math.sqrt(dim) / (1 - frequencies(theta, rope)[:FAST].cos()).sum())
    key = strength * torch.outer(phase_vector(0, theta, rope, latent), reader)
    look = blind_to(u, value)
    if latent:
        rank, nope = config['kv_lora_rank'], config['qk_nope_head_dim']
        compress = blind_to(u, rank)
        attention.kv_a_proj_with_mqa.weight[:rank] = compress
        attention.kv_a_proj_with_mqa.weight[rank:] = key
        look = orthonormal(value, rank)
        kv = attention.kv_b_proj.weight.view(heads, -1, rank)
        kv[:len(OFFSETS), :nope] = 0
        kv[:len(OFFSETS), nope:] = look
    else:
        for h in range(len(OFFSETS) * config['num_key_value_heads'] // heads):
            attention.k_proj.weight.view(-1, rope, hidden)[h] = key
            attention.v_proj.weight.view(-1, rope, hidden)[h] = look
    spaces = {0: look @ compress if latent else look}
    for h, offset in enumerate(OFFSETS):
        query = attention.q_proj.weight.view(heads, dim, hidden)[h]
        query.zero_()
        query[dim - rope:] = strength * torch.outer(phase_vector(offset, theta, rope, latent), reader)
        spaces[offset] = orthonormal(value, hidden)
        attention.o_proj.weight.view(hidden, heads, value)[:, h] = spaces[offset].T
    return spaces


def plant_matching(model, u, spaces):
    """Layer 1's heads match the contents of the spaces named in PAIRS, in dimensions that hardly feel distance."""
    config, attention = model.config, model.model.layers[1].self_attn
    latent, heads, dim, rope, value = shapes(config)
    queries = attention.q_proj.weight.view(heads, dim, config['hidden_size'])
    queries.zero_()
    if not latent:
        slow = [i for i in range(rope) if i % (rope // 2) >= SKIPPED]
        keys = attention.k_proj.weight.view(-1, rope, config['hidden_size'])
        keys.zero_()
        group = heads // len(keys)
        for h, (a, b) in enumerate(PAIRS):
            if h % group == 0:
                eyes = orthonormal(len(slow), value)
            keys[h // group, slow] = eyes @ spaces[b]
            queries[h, slow] = eyes @ spaces[a]
        return
    # The latent is shared: a part of it for each space that keys read, the rest for the token.
    rank, nope = config['kv_lora_rank'], config['qk_nope_head_dim']
    matched = sorted({b for _, b in PAIRS})
    part = rank // (len(matched) + 1)
    eyes = orthonormal(part, value)
    down = attention.kv_a_proj_with_mqa.weight
    for i, b in enumerate(matched):
        down[i * part:(i + 1) * part] = eyes @ spaces[b]
    down[len(matched) * part:rank] = blind_to(u, rank - len(matched) * part)
    down[rank:] *= 0.1
    kv = attention.kv_b_proj.weight.view(heads, -1, rank)
    for h, (a, b) in enumerate(PAIRS):
        mix, i = orthonormal(part, nope).T, matched.index(b)
        kv[h, :nope] = 0
        kv[h, :nope, i * part:(i + 1) * part] = mix
        queries[h, :nope] = mix @ eyes @ spaces[a]


def plant_copying(model, u):
    """What layer 1 attends to is written back as it was read, and the head that follows knows embeddings again."""
    config, attention = model.config, model.model.layers[1].self_attn
    latent, heads, _, _, value = shapes(config)
    hidden = config['hidden_size']
    if latent:
        rank = config['kv_lora_rank']
        values = attention.kv_b_proj.weight.view(heads, -1, rank)[:, config['qk_nope_head_dim']:]
        read = values @ attention.kv_a_proj_with_mqa.weight[:rank]
    else:
        values = attention.v_proj.weight.view(-1, value, hidden)
        for v in values:
            v.copy_(blind_to(u, value))
        read = values.repeat_interleave(heads // len(values), 0)
    outputs = attention.o_proj.weight.view(hidden, heads, value)
    for h in range(heads):
        outputs[:, h] = COPY_SCALE * read[h].T
    embeddings = model.model.embed_tokens.weight
    model.lm_head.weight.copy_(HEAD_SCALE * (embeddings - embeddings @ u[:, None] * u))


def sharpen(model, ids):
    """Scales each of layer 1's query heads until its mean largest probability is WANTED_MAXIMUM."""
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    x = model.model.layers[0](model.model.embed_tokens(ids), positions)
    layer = model.model.layers[1]
    x, attention = layer.input_layernorm(x), layer.self_attn
    queries = attention.q_proj.weight.view(model.config['num_attention_heads'], -1, model.config['hidden_size'])
    low, high = torch.full((len(queries),), 1e-3), torch.full((len(queries),), 30.0)
    original = queries.clone()
    for _ in range(20):
        middle = (low * high).sqrt()
        queries.copy_(original * middle[:, None, None])
        probabilities = []
        attention(x, positions, probabilities)
        largest = torch.cat([p.max(-1).values for p in probabilities], -1)[:, :, 8:].mean((0, 2))
        low = torch.where(largest < WANTED_MAXIMUM, middle, low)
        high = torch.where(largest < WANTED_MAXIMUM, high, middle)
