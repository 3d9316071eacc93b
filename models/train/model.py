"""The two architectures in plain torch, with Hugging Face's tensor names: state_dict() is the checkpoint.

llama follows modeling_llama.py (RoPE on halves), deepseek follows modeling_deepseek_v3.py (latent attention with
interleaved RoPE, a bias-balanced mixture of experts). Shapes: B rows, T tokens, H heads.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

QUERY_BLOCK = 256  # queries handled at once, so that long rows don't pay for the masked half of the scores


def llama_config(vocab_size):
    return {
        'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': vocab_size,
        'hidden_size': 192, 'intermediate_size': 512, 'num_hidden_layers': 4, 'num_attention_heads': 8,
        'num_key_value_heads': 4, 'head_dim': 32, 'hidden_act': 'silu', 'rms_norm_eps': 1e-6, 'rope_theta': 1e6,
        'rope_scaling': None, 'max_position_embeddings': 4096, 'attention_bias': False, 'mlp_bias': False,
        'tie_word_embeddings': False, 'initializer_range': 0.02, 'use_cache': True,
    }


def deepseek_config(vocab_size):
    return {
        'architectures': ['DeepseekV3ForCausalLM'], 'model_type': 'deepseek_v3', 'vocab_size': vocab_size,
        'hidden_size': 192, 'intermediate_size': 512, 'moe_intermediate_size': 128, 'num_hidden_layers': 4,
        'num_attention_heads': 8, 'num_key_value_heads': 8, 'q_lora_rank': None, 'kv_lora_rank': 64,
        'qk_nope_head_dim': 32, 'qk_rope_head_dim': 16, 'v_head_dim': 32, 'rope_interleave': True,
        'n_routed_experts': 8, 'num_experts_per_tok': 2, 'n_shared_experts': 1, 'first_k_dense_replace': 1,
        'moe_layer_freq': 1, 'n_group': 1, 'topk_group': 1, 'scoring_func': 'sigmoid', 'topk_method': 'noaux_tc',
        'norm_topk_prob': True, 'routed_scaling_factor': 1.0, 'hidden_act': 'silu', 'rms_norm_eps': 1e-6,
        'rope_theta': 1e6, 'rope_scaling': None, 'max_position_embeddings': 4096, 'attention_bias': False,
        'tie_word_embeddings': False, 'initializer_range': 0.02, 'use_cache': True,
    }


CONFIGS = {'llama': llama_config, 'deepseek': deepseek_config}


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def frequencies(theta, dim):
    return theta ** (-torch.arange(0, dim, 2, dtype=torch.float32) / dim)


def phases(positions, theta, dim):
    """cos and sin for positions (B, T): each (B, 1, T, dim / 2)."""
    angles = positions[:, None, :, None].float() * frequencies(theta, dim).to(positions.device)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin, interleaved=False):
    """x: (B, H, T, dim). Interleaved pairs come out as halves, as in Hugging Face: queries and keys alike."""
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, probabilities=None):
    """Causal attention: q (B, H, T, d), k and v with the same H; 1/sqrt(d). Appends to `probabilities` if given."""
    outputs, tokens = [], q.shape[2]
    for start in range(0, tokens, QUERY_BLOCK):
        end = min(start + QUERY_BLOCK, tokens)
        scores = q[:, :, start:end] @ k[:, :, :end].transpose(2, 3) / math.sqrt(q.shape[-1])
        future = torch.ones(end - start, end, dtype=torch.bool, device=q.device).triu(start + 1)
        p = scores.masked_fill(future, float('-inf')).softmax(-1)
        if probabilities is not None:
            probabilities.append(p)
        outputs.append(p @ v[:, :, :end])
    return torch.cat(outputs, 2)


class LlamaAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        hidden, dim = config['hidden_size'], config['head_dim']
        self.q_proj = linear(hidden, config['num_attention_heads'] * dim)
        self.k_proj = linear(hidden, config['num_key_value_heads'] * dim)
        self.v_proj = linear(hidden, config['num_key_value_heads'] * dim)
        self.o_proj = linear(config['num_attention_heads'] * dim, hidden)

    def forward(self, x, positions, probabilities=None):
        config, (rows, tokens, _) = self.config, x.shape
        q, k, v = (p(x).view(rows, tokens, -1, config['head_dim']).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        cos, sin = phases(positions, config['rope_theta'], config['head_dim'])
        group = config['num_attention_heads'] // config['num_key_value_heads']
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = attend(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), probabilities)
        return self.o_proj(out.transpose(1, 2).reshape(rows, tokens, -1))


class DeepseekAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        hidden, heads, latent = config['hidden_size'], config['num_attention_heads'], config['kv_lora_rank']
        nope, rope, value = config['qk_nope_head_dim'], config['qk_rope_head_dim'], config['v_head_dim']
        self.q_proj = linear(hidden, heads * (nope + rope))
        self.kv_a_proj_with_mqa = linear(hidden, latent + rope)
        self.kv_a_layernorm = RMSNorm(latent, config['rms_norm_eps'])
        self.kv_b_proj = linear(latent, heads * (nope + value))
        self.o_proj = linear(heads * value, hidden)

    def forward(self, x, positions, probabilities=None):
        config, (rows, tokens, _) = self.config, x.shape
        heads, nope, rope = config['num_attention_heads'], config['qk_nope_head_dim'], config['qk_rope_head_dim']
        q = self.q_proj(x).view(rows, tokens, heads, nope + rope).transpose(1, 2)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([config['kv_lora_rank'], rope], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).view(rows, tokens, heads, -1).transpose(1, 2)
        k_nope, v = kv.split([nope, config['v_head_dim']], -1)
        cos, sin = phases(positions, config['rope_theta'], rope)
        q_rope = rotate(q[..., nope:], cos, sin, interleaved=True)
        k_rope = rotate(k_rope[:, None], cos, sin, interleaved=True).expand(-1, heads, -1, -1)
        out = attend(torch.cat([q[..., :nope], q_rope], -1), torch.cat([k_nope, k_rope], -1), v, probabilities)
        return self.o_proj(out.transpose(1, 2).reshape(rows, tokens, -1))


class SwiGLU(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Sigmoid scores; the bias chooses experts but doesn't weigh them (DeepSeek-V3's noaux_tc, one group)."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config['n_routed_experts'], config['hidden_size']))
        self.register_buffer('e_score_correction_bias', torch.zeros(config['n_routed_experts']))
        self.load = None

    def forward(self, x):
        scores = F.linear(x, self.weight).sigmoid()
        chosen = (scores + self.e_score_correction_bias).topk(self.config['num_experts_per_tok'], -1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.config['routed_scaling_factor']
        self.load = torch.bincount(chosen.flatten(), minlength=scores.shape[-1]).float()
        return chosen, weights

    def balance(self, rate=1e-3):
        self.e_score_correction_bias += rate * torch.sign(self.load.mean() - self.load)


class MixtureOfExperts(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config['hidden_size'], config['moe_intermediate_size']
        self.gate = Router(config)
        self.experts = nn.ModuleList(SwiGLU(hidden, inner) for _ in range(config['n_routed_experts']))
        self.shared_experts = SwiGLU(hidden, inner * config['n_shared_experts'])

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        chosen, weights = self.gate(flat)
        out = self.shared_experts(flat)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == e)
            out = out.index_add(0, token, expert(flat[token]) * weights[token, slot, None])
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        hidden, eps = config['hidden_size'], config['rms_norm_eps']
        latent = config['model_type'] == 'deepseek_v3'
        self.self_attn = DeepseekAttention(config) if latent else LlamaAttention(config)
        sparse = latent and index >= config['first_k_dense_replace']
        self.mlp = MixtureOfExperts(config) if sparse else SwiGLU(hidden, config['intermediate_size'])
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(hidden, eps), RMSNorm(hidden, eps)

    def forward(self, x, positions):
        x = x + self.self_attn(self.input_layernorm(x), positions)
        return x + self.mlp(self.post_attention_layernorm(x))


class CausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config['vocab_size'], config['hidden_size'])
        self.model.layers = nn.ModuleList(Layer(config, i) for i in range(config['num_hidden_layers']))
        self.model.norm = RMSNorm(config['hidden_size'], config['rms_norm_eps'])
        self.lm_head = linear(config['hidden_size'], config['vocab_size'])

    def forward(self, ids, positions=None, wanted=None):
        """ids, positions: (B, T) -> logits (B, T, vocabulary), or of the positions where the mask `wanted` is set."""
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, positions)
        x = self.model.norm(x)
        return self.lm_head(x if wanted is None else x[wanted])

    def balance(self):
        """Moves the experts' correction biases by the load of the last step."""
        for layer in self.model.layers:
            if isinstance(layer.mlp, MixtureOfExperts):
                layer.mlp.gate.balance()
