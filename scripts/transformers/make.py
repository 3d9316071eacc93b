"""Small random checkpoints of transformers' own classes, saved by transformers, with what its code computes in float64.

    python make.py FOLDER [NAME ...]

FOLDER/NAME gets config.json, model.safetensors and what else the class saves, and expected.json: token ids (and pictures or
recordings beside them, these with their frames) with logits.f64 [positions, vocabulary], or texts with vectors or scores.
FOLDER/NAME/lora has a PEFT adapter and its logits.f64. compare.mjs reads them. Needs torch, transformers 5, pillow, and peft where
adapters are wanted.
"""

import importlib
import json
import math
import os
import random
import string
import sys
import types
import unittest.mock
import wave

import numpy
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

transformers.logging.set_verbosity_error()
VOCABULARY = 320
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
SHAPE = dict(
    vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=1024, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
YARN = dict(rope_theta=1e4, rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
HEAD = dict(head_dim=16)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=40)
LOCAL = dict(num_local_experts=6, num_experts_per_tok=2)
GRANITE = dict(embedding_multiplier=12.0, attention_multiplier=0.0625, residual_multiplier=0.22, logits_scaling=6.0)
MAMBA = dict(mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_expand=2, mamba_d_conv=4)
DELTA = dict(
    head_dim=32, num_hidden_layers=4, layer_types=["linear_attention"] * 3 + ["full_attention"],
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
)  # fmt: skip
LATENT = dict(
    num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, q_lora_rank=24,
    n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=40, first_k_dense_replace=1,
)  # fmt: skip
GEMMA4 = dict(head_dim=16, global_head_dim=32, num_hidden_layers=6, layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 2)
TWO_KINDS = ["full_attention", "sliding_attention"] * 2

# Which text models: a model_type and what differs from SHAPE.
TEXT = {
    "llama": ("llama", HEAD),
    "llama-biases": ("llama", dict(attention_bias=True, mlp_bias=True, head_dim=32, tie_word_embeddings=True)),
    "llama-wide": ("llama", dict(hidden_size=96, num_attention_heads=6, num_key_value_heads=1, head_dim=80)),
    "llama3": ("llama", dict(rope_parameters=dict(rope_theta=5e5, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))),
    "llama-linear": ("llama", dict(rope_parameters=dict(rope_theta=1e4, rope_type="linear", factor=4.0))),
    "llama-yarn": ("llama", dict(rope_parameters=YARN)),
    "mistral": ("mistral", dict(HEAD, sliding_window=7)),
    "ministral": ("ministral", dict(HEAD, sliding_window=7, layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    "ministral3": ("ministral3", dict(HEAD, rope_parameters=dict(YARN, factor=16.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
    "mixtral": ("mixtral", LOCAL),
    "qwen2": ("qwen2", dict(use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "qwen3": ("qwen3", dict(head_dim=32, rope_parameters=dict(YARN, attention_factor=1.1, beta_fast=16.0))),
    "qwen3-moe": ("qwen3_moe", dict(HEAD, **EXPERTS, norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[0])),
    "qwen3-next": ("qwen3_next", dict(DELTA, **EXPERTS, shared_expert_intermediate_size=40, decoder_sparse_step=1)),
    "qwen3.5": ("qwen3_5_text", DELTA),
    "qwen3.5-moe": ("qwen3_5_moe_text", dict(DELTA, **EXPERTS, shared_expert_intermediate_size=40)),
    "gemma": ("gemma", dict(HEAD, tie_word_embeddings=True)),
    "gemma2": ("gemma2", dict(HEAD, sliding_window=8, query_pre_attn_scalar=24)),
    "gemma3": ("gemma3_text", dict(HEAD, sliding_window=8, query_pre_attn_scalar=24)),
    "gemma4": ("gemma4_text", dict(GEMMA4, sliding_window=8, hidden_size_per_layer_input=64, vocab_size_per_layer_input=VOCABULARY, num_kv_shared_layers=2)),
    "gemma4-experts": ("gemma4_text", dict(GEMMA4, sliding_window=8, hidden_size_per_layer_input=0, num_kv_shared_layers=0, enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=32)),
    "gemma4-unified": ("gemma4_unified_text", dict(GEMMA4, sliding_window=8, attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=30.0)),
    "phi3": ("phi3", {}),
    "phi4-mini": ("phi3", dict(hidden_size=128, tie_word_embeddings=True, rope_parameters=dict(rope_theta=1e4, rope_type="longrope", partial_rotary_factor=0.75, short_factor=[1 + 0.1 * i for i in range(12)], long_factor=[1.5 + 0.4 * i for i in range(12)], original_max_position_embeddings=32))),
    "smollm3": ("smollm3", dict(num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1], use_sliding_window=True, sliding_window=6)),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", dict(sliding_window=6, num_hidden_layers=4)),
    "starcoder2": ("starcoder2", dict(sliding_window=6, use_bias=True)),
    "glm4": ("glm4", dict(HEAD, partial_rotary_factor=0.5, attention_bias=True)),
    "cohere2": ("cohere2", dict(sliding_window=6, num_hidden_layers=4, logit_scale=0.25)),
    "granite": ("granite", GRANITE),
    "granite-moe": ("granitemoe", dict(GRANITE, **LOCAL)),
    "granite-shared": ("granitemoeshared", dict(GRANITE, **LOCAL, shared_intermediate_size=40)),
    "granite-hybrid": ("granitemoehybrid", dict(GRANITE, **LOCAL, **MAMBA, mamba_n_groups=2, shared_intermediate_size=40, layer_types=["mamba", "attention", "mamba"], position_embedding_type="rope")),
    "lfm2": ("lfm2", dict(layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, block_multiple_of=16)),
    "lfm2-moe": ("lfm2_moe", dict(EXPERTS, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, num_dense_layers=1)),
    "deepseek-v2": ("deepseek_v2", dict(LATENT, n_shared_experts=1, topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=2.5)),
    "deepseek-v3": ("deepseek_v3", dict(LATENT, n_shared_experts=2, n_group=2, topk_group=1, norm_topk_prob=True, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0))),
    "minicpm3": ("minicpm3", dict(LATENT, scale_emb=12, scale_depth=1.4, dim_model_base=32)),
    "gpt-oss": ("gpt_oss", dict(head_dim=32, **LOCAL, sliding_window=5, num_hidden_layers=4, layer_types=TWO_KINDS)),
}  # fmt: skip


def randomise(model):
    """Numbers large enough that every part of the network shows in the logits."""
    with torch.no_grad():
        for name, value in list(model.named_parameters()) + [each for each in model.named_buffers() if any(part in each[0] for part in ("std_", "put_m"))]:
            if not value.is_floating_point():
                continue
            noise = torch.randn_like(value)
            if "put_m" in name:
                value.copy_((1.2 + 0.1 * noise) * (-1 if name.endswith("min") else 1))
            elif "A_log" in name:
                value.copy_(torch.log(torch.rand_like(value) * 8 + 0.5))
            elif "dt_bias" in name:
                value.copy_(noise * 0.5)
            elif value.ndim == 0 or "layer_scalar" in name:
                value.copy_(torch.rand_like(value) * 0.5 + 0.7)
            elif value.ndim == 1 and ("norm" in name or "std_scale" in name) and "bias" not in name:
                value.copy_(round(min(1.0, abs(float(value.mean())))) + noise * 0.2)
            elif value.ndim == 1:
                value.copy_(noise * 0.1)
            elif "embed" in name and not any(part in name for part in ("per_layer", "patch", "projection")):
                value.copy_(noise * 0.5)
            else:
                # Experts are stacks of matrices, each to be as large as one alone.
                inputs = value.shape[-1] if "experts" in name else value[0].numel()
                value.copy_(noise * 1.2 / math.sqrt(inputs))


def saved(folder, config, auto, **more):
    """Saves a random model of the class, and reads it back in float64."""
    model = auto.from_config(config, **more).float().eval()
    randomise(model)
    model.save_pretrained(folder)
    return auto.from_pretrained(folder, dtype=torch.float64, **more).double().eval()


def write(folder, logits, **expected):
    logits.detach().double().numpy().tofile(f"{folder}/logits.f64")
    with open(f"{folder}/expected.json", "w") as file:
        json.dump(dict(expected, vocabulary=logits.shape[-1]), file)


def text_model(folder, model_type, changes):
    config = transformers.AutoConfig.for_model(model_type, **{**SHAPE, **changes})
    model = saved(folder, config, transformers.AutoModelForCausalLM, **EAGER)
    ids = [random.randrange(3, VOCABULARY) for _ in range(40)]
    with torch.no_grad():
        write(folder, model(torch.tensor([ids]), use_cache=False).logits[0], ids=ids)
    try:
        import peft
    except ImportError:
        return
    stacks = [name for name, value in model.named_parameters() if value.ndim == 3 and "experts" in name]
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    targets = r".*(self_attn\.[a-z_]*proj[a-z_]*|embed_tokens)" if stacks else [*linear, "embed_tokens"]
    options = peft.LoraConfig(
        task_type="CAUSAL_LM", r=6, lora_alpha=5, use_rslora=True, target_modules=targets, target_parameters=stacks or None
    )
    adapted = peft.get_peft_model(model.float(), options)
    with torch.no_grad():
        for name, value in adapted.named_parameters():
            if "lora_" in name:
                inputs = 1 if "embedding_A" in name else value.shape[-1]
                value.copy_(torch.randn_like(value) * 0.4 / math.sqrt(inputs))
        adapted.save_pretrained(f"{folder}/lora")
        logits = adapted.double()(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    write(f"{folder}/lora", logits, ids=ids)


def pictures():
    """One wider than high, one of about a square, as waves with noise."""
    drawn = numpy.random.RandomState(random.randrange(10**6))
    made = []
    for width, height in ((drawn.randint(60, 300), drawn.randint(20, 120)), (drawn.randint(40, 130), drawn.randint(40, 130))):
        y, x = numpy.mgrid[0:height, 0:width]
        waves = [127 + 60 * numpy.sin(x * 0.3 * drawn.rand()) + 60 * numpy.cos(y * 0.3 * drawn.rand()) for _ in range(3)]
        pixels = numpy.stack(waves, axis=-1) + drawn.randn(height, width, 3) * 12
        made.append(Image.fromarray(numpy.clip(pixels, 0, 255).astype("uint8")))
    return made


def words(count):
    return [random.randrange(10, 250) for _ in range(count)]


def picture_model(folder, config, processor, images, ids, inputs):
    model = saved(folder, config, transformers.AutoModelForImageTextToText, **EAGER)
    processor.save_pretrained(folder)
    for number, image in enumerate(images):
        image.save(f"{folder}/picture{number}.png")
    doubles = {key: value.double() if torch.is_floating_point(value) else value for key, value in inputs.items()}
    with torch.no_grad():
        write(folder, model(input_ids=torch.tensor([ids]), use_cache=False, **doubles).logits[0], ids=ids, pictures=len(images))


def processor_of(name):
    """Made of PIL and numpy alone."""
    path = f"transformers.models.{name}.image_processing_pil_{name}"
    found = vars(importlib.import_module(path))
    return next(value for key, value in found.items() if key.endswith("ImageProcessorPil") and value.__module__ == path)


TOWER = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=8)


def idefics(folder, kind, **options):
    processor = processor_of(kind)(size={"longest_edge": 128}, max_image_size={"longest_edge": 64}, **options)
    config = transformers.AutoConfig.for_model(
        kind, image_token_id=300, scale_factor=2, pad_token_id=0, tie_word_embeddings=False,
        text_config=dict(SHAPE, model_type="llama", **HEAD), vision_config=TOWER,
    )  # fmt: skip
    images = pictures()
    ids = [1, *words(4)]
    for image in images:
        for _ in range(processor(images=[[image]], return_tensors="pt")["pixel_values"].shape[1]):
            ids += [*words(1), *[300] * 16]
        ids += words(3)
    inputs = processor(images=[images], return_tensors="pt")
    picture_model(folder, config, processor, images, ids, {key: inputs[key] for key in ("pixel_values", "pixel_attention_mask")})


def gemma3(folder):
    processor = processor_of("gemma3")(size={"height": 64, "width": 64})
    text = dict(SHAPE, model_type="gemma3_text", sliding_window=32, query_pre_attn_scalar=24, **HEAD)
    config = transformers.AutoConfig.for_model(
        "gemma3", image_token_index=300, boi_token_index=301, eoi_token_index=302, mm_tokens_per_image=16,
        text_config=text, vision_config=TOWER,
    )  # fmt: skip
    images = pictures()
    ids = [1, *words(4)]
    for _ in images:
        ids += [301, *[300] * 16, 302, *words(4)]
    values = processor(images=images, return_tensors="pt")["pixel_values"]
    picture_model(folder, config, processor, images, ids, dict(pixel_values=values, token_type_ids=torch.tensor([[int(id == 300) for id in ids]])))


GEMMA4_SMALL = dict(SHAPE, **{**GEMMA4, "sliding_window": 128}, hidden_size_per_layer_input=64, vocab_size_per_layer_input=VOCABULARY, num_kv_shared_layers=2)


def gemma4(folder, encoder, **changes):
    processor = processor_of("gemma4")(patch_size=8, max_soft_tokens=70, pooling_kernel_size=3)
    tower = dict(TOWER, head_dim=16, global_head_dim=16, num_key_value_heads=4, position_embedding_size=1024, pooling_kernel_size=3, default_output_length=70, **encoder)
    config = transformers.AutoConfig.for_model(
        "gemma4", image_token_id=300, boi_token_id=301, eoi_token_id=302, audio_token_id=303, video_token_id=304, audio_config=None,
        vision_soft_tokens_per_image=70, text_config={**GEMMA4_SMALL, **changes, "model_type": "gemma4_text"}, vision_config=tower,
    )  # fmt: skip
    images = pictures()
    inputs = processor(images=images, return_tensors="pt")
    ids = [1, *words(4)]
    for count in inputs["num_soft_tokens_per_image"]:
        ids += [301, *[300] * int(count), 302, *words(4)]
    kinds = torch.tensor([[int(id == 300) for id in ids]])
    named = {key: inputs[key] for key in ("pixel_values", "image_position_ids")}
    picture_model(folder, config, processor, images, ids, dict(named, mm_token_type_ids=kinds))


def recordings():
    """Of 16 bits, as a WAV file has them: less than a row, as much as a row has, odd lengths; loud, silent, and silent at an end."""
    drawn = numpy.random.RandomState(random.randrange(10**6))
    made = []
    for count, loudness in ((163, 0.3), (641, 1.5), (5003, 0.0), (16_000, 0.1), (51_237, 0.5)):
        time = numpy.arange(count) / 16_000
        tones = sum(numpy.sin(2 * numpy.pi * drawn.uniform(80, 7000) * time + drawn.rand()) for _ in range(4)) / 4
        samples = loudness * (tones * (1 + numpy.sin(7 * time)) + 0.1 * drawn.randn(count))
        if count == 16_000:
            samples[count // 2 :] = 0
        made.append(numpy.clip(numpy.round(samples * 32768), -32768, 32767).astype("int16"))
    return made


def write_recording(folder, number, samples):
    with wave.open(f"{folder}/recording{number}.wav", "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", "not compressed"))
        file.writeframes(samples.tobytes())


def gemma4_sound(folder, sounds, **audio):
    extractor = importlib.import_module("transformers.models.gemma4.feature_extraction_gemma4").Gemma4AudioFeatureExtractor()
    small = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, subsampling_conv_channels=[128, 6], output_proj_dims=72)
    config = transformers.AutoConfig.for_model(
        "gemma4", image_token_id=300, boi_token_id=301, eoi_token_id=302, audio_token_id=303, video_token_id=304, boa_token_id=305,
        eoa_token_index=306, vision_config=None, text_config={**GEMMA4_SMALL, "model_type": "gemma4_text"}, audio_config={**small, **audio},
    )  # fmt: skip
    # By default. With "eager" masks are numbers, which its encoder of sound takes for the opposite.
    model = saved(folder, config, transformers.AutoModelForImageTextToText, attn_implementation="sdpa")
    with open(f"{folder}/processor_config.json", "w") as file:
        json.dump({"feature_extractor": json.loads(extractor.to_json_string())}, file)
    inputs = extractor([samples.astype("float32") / 32768 for samples in sounds], return_tensors="pt")
    features, mask = inputs["input_features"], inputs["input_features_mask"].bool()
    ids = [1, *words(4)]
    for number, samples in enumerate(sounds):
        write_recording(folder, number, samples)
        features[number][mask[number]].double().numpy().tofile(f"{folder}/frames{number}.f64")
        # As Gemma4Processor counts them.
        ids += [305, *[303] * int(mask[number][::2][::2].sum()), 306, *words(3)]
    encode = model.model.get_audio_features

    def encode_in_doubles(*inputs, **more):
        """Its attention makes float32 of what it is given, in part."""
        with unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
            return encode(*inputs, **more)

    model.model.get_audio_features = encode_in_doubles
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids]), input_features=features.double(), input_features_mask=mask, use_cache=False)
    write(folder, output.logits[0], ids=ids, recordings=len(sounds))


def torchvision_processor(name, kind, **options):
    """There is none without torchvision. What it calls of that is done here, by Pillow, from which torchvision differs by a level."""

    def tensor(image):
        return torch.from_numpy(numpy.array(image)).permute(2, 0, 1)

    def resize(images, size, interpolation, antialias):
        if images.ndim == 3:
            return resize(images[None], size, interpolation, antialias)[0]
        pictures = [Image.fromarray(each.permute(1, 2, 0).numpy()) for each in images]
        return torch.stack([tensor(each.resize(size[::-1], interpolation)) for each in pictures])

    def normalize(images, mean, std, inplace):
        return (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)

    functional = types.SimpleNamespace(pil_to_tensor=tensor, resize=resize, normalize=normalize, InterpolationMode=Image.Resampling)
    stand_ins = {f"torchvision{part}": types.ModuleType("torchvision") for part in ("", ".transforms", ".transforms.v2")}
    stand_ins["torchvision.transforms.v2"].functional = functional
    sys.modules.update(stand_ins)
    found = importlib.import_module(f"transformers.models.{name}.image_processing_{name}")
    for stand_in in stand_ins:
        del sys.modules[stand_in]
    backends = importlib.import_module("transformers.image_processing_backends")
    backends.tvF, backends.pil_torch_interpolation_mapping = functional, {each: each for each in Image.Resampling}
    return getattr(found, kind)(**options)


def lfm2(folder, normed, **options):
    processor = torchvision_processor("lfm2_vl", "Lfm2VlImageProcessor", tile_size=64, min_image_tokens=4, max_image_tokens=16, encoder_patch_size=8, max_tiles=6, **options)
    config = transformers.AutoConfig.for_model(
        "lfm2_vl", image_token_id=300, downsample_factor=2, projector_hidden_size=72, projector_use_layernorm=normed,
        text_config=dict(SHAPE, model_type="lfm2", layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, block_multiple_of=16),
        vision_config=dict(TOWER, num_patches=25, vision_use_head=False),
    )  # fmt: skip
    images = pictures()
    ids = [1, *words(4)]
    for image in images:
        for height, width in processor(images=[[image]], return_tensors="pt")["spatial_shapes"].tolist():
            ids += [*words(1), *[300] * (height * width // 4)]
        ids += words(3)
    inputs = processor(images=[images], return_tensors="pt")
    picture_model(folder, config, processor, images, ids, {key: inputs[key] for key in ("pixel_values", "spatial_shapes", "pixel_attention_mask")})


def gemma4_unified(folder, images=(), sounds=(), sees="vision", vision={}, audio={}, **changes):
    """Without encoders. Rows of pictures see each other where `generate` lets them: `forward` alone would let them in all layers."""
    extractor = importlib.import_module("transformers.models.gemma4_unified.feature_extraction_gemma4_unified").Gemma4UnifiedAudioFeatureExtractor
    tower = {**dict(patch_size=4, pooling_kernel_size=3, mm_embed_dim=72, output_proj_dims=72, mm_posemb_size=80, num_soft_tokens=70), **vision}
    text = {**SHAPE, **GEMMA4, "sliding_window": 128, "attention_k_eq_v": True, "num_global_key_value_heads": 1, **changes}
    config = transformers.AutoConfig.for_model(
        "gemma4_unified", image_token_id=300, boi_token_id=301, eoi_token_id=302, audio_token_id=303, video_token_id=304, boa_token_id=305,
        eoa_token_index=306, text_config={**text, "use_bidirectional_attention": sees},
        vision_config=tower, audio_config={"audio_embed_dim": 40, **audio},
    )  # fmt: skip
    frame = config.audio_config.audio_embed_dim
    extractor = extractor(feature_size=frame, audio_samples_per_token=frame)
    sizes = {key: tower[key] for key in ("patch_size", "pooling_kernel_size")}
    processor = torchvision_processor("gemma4_unified", "Gemma4UnifiedImageProcessor", max_soft_tokens=70, **sizes)
    model = saved(folder, config, transformers.AutoModelForImageTextToText, **EAGER)
    with open(f"{folder}/processor_config.json", "w") as file:
        both = {"image_processor": processor, "feature_extractor": extractor}
        json.dump({name: json.loads(part.to_json_string()) for name, part in both.items()}, file)
    inputs, ids = {}, [1, *words(4)]
    if images:
        made = processor(images=list(images), return_tensors="pt")
        inputs.update({key: made[key] for key in ("pixel_values", "image_position_ids")}, pixel_values=made["pixel_values"].double())
    if sounds:
        made_sounds = extractor([samples.astype("float32") / 32768 for samples in sounds], return_tensors="pt")
        inputs.update(made_sounds, input_features=made_sounds["input_features"].double())
    for number in range(max(len(images), len(sounds))):
        if number < len(images):
            images[number].save(f"{folder}/picture{number}.png")
            ids += [301, *[300] * int(made["num_soft_tokens_per_image"][number]), 302, *words(3)]
        if number < len(sounds):
            write_recording(folder, number, sounds[number])
            ids += [305, *[303] * int(made_sounds["input_features_mask"][number].sum()), 306, *words(3)]
    kinds = torch.tensor([[int(id == 300) for id in ids]])
    empty = torch.empty(1, len(ids), 0, dtype=torch.float64)
    mask = model.create_masks_for_generate(config, empty, None, None, torch.arange(len(ids))[None], mm_token_type_ids=kinds)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), attention_mask=mask, mm_token_type_ids=kinds, use_cache=False, **inputs).logits[0]
    media = dict(pictures=len(images), recordings=len(sounds))
    write(folder, logits, ids=ids, **{key: count for key, count in media.items() if count})


def qwen(folder, kind, sections, text, mean=(0.5, 0.5, 0.5), **tower):
    processor = processor_of("qwen2_vl")(
        patch_size=8, temporal_patch_size=2, merge_size=2, size={"shortest_edge": 1024, "longest_edge": 9216},
        image_mean=list(mean), image_std=[0.5] * 3,
    )  # fmt: skip
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=sections, mrope_interleaved=True)
    config = transformers.AutoConfig.for_model(
        kind, image_token_id=300, video_token_id=303, vision_start_token_id=301, vision_end_token_id=302,
        text_config={**SHAPE, "head_dim": 32, **text, "rope_parameters": {**rope, **text.get("rope_parameters", {})}},
        vision_config={**dict(hidden_size=64, intermediate_size=96, depth=3, num_heads=4, patch_size=8, out_hidden_size=64, num_position_embeddings=64), **tower},
    )  # fmt: skip
    images = pictures()
    inputs = processor(images=images, return_tensors="pt")
    ids = [1, *words(4)]
    for _, height, width in inputs["image_grid_thw"].tolist():
        ids += [301, *[300] * (height * width // 4), 302, *words(5)]
    kinds = torch.tensor([[int(id == 300) for id in ids]])
    named = {key: inputs[key] for key in ("pixel_values", "image_grid_thw")}
    picture_model(folder, config, processor, images, ids, dict(named, mm_token_type_ids=kinds))


def qwen25_flat(folder):
    """As its makers published it, the text part's keys beside the encoder's."""
    qwen(folder, "qwen2_5_vl", [1, 5, 2], dict(head_dim=None), depth=3, window_size=64, fullatt_block_indexes=[0], hidden_size=128, num_heads=8, intermediate_size=100)
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    theta = rope.pop("rope_theta")
    del text["model_type"]
    with open(f"{folder}/config.json", "w") as file:
        json.dump({**text, **config, "rope_theta": theta, "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}, file)


PICTURES = {
    "idefics3": lambda folder: idefics(folder, "idefics3"),
    "smolvlm": lambda folder: idefics(folder, "smolvlm"),
    "smolvlm-whole": lambda folder: idefics(folder, "smolvlm", do_image_splitting=False),
    "gemma3-vision": gemma3,
    "gemma4-vision": lambda folder: gemma4(folder, dict(use_clipped_linears=True)),
    "gemma4-vision-both-ways": lambda folder: gemma4(folder, dict(standardize=True), use_bidirectional_attention="vision"),
    "lfm2-vl": lambda folder: lfm2(folder, True),
    "lfm2-vl-whole": lambda folder: lfm2(folder, False, do_image_splitting=False),
    "gemma4-unified-vision": lambda folder: gemma4_unified(folder, pictures()),
    "gemma4-unified-causal": lambda folder: gemma4_unified(
        folder, pictures()[::-1], sees=None, vision=dict(patch_size=5, pooling_kernel_size=2, mm_embed_dim=50, output_proj_dims=50, rms_norm_eps=1e-4),
    ),
    "qwen2.5-vl": lambda folder: qwen(
        folder, "qwen2_5_vl", [2, 3, 3], dict(head_dim=None), (0.48, 0.45, 0.4), depth=4, window_size=32, fullatt_block_indexes=[1, 3],
    ),
    "qwen2.5-vl-flat": qwen25_flat,
    "qwen3-vl": lambda folder: qwen(folder, "qwen3_vl", [8, 4, 4], {}, deepstack_visual_indexes=[0, 2]),
    "qwen3-vl-moe": lambda folder: qwen(folder, "qwen3_vl_moe", [8, 4, 4], dict(EXPERTS, mlp_only_layers=[1]), deepstack_visual_indexes=[0, 2]),
    "qwen3.5-vision": lambda folder: qwen(folder, "qwen3_5", [4, 2, 2], {**DELTA, "rope_parameters": {"partial_rotary_factor": 0.5}}),
}

SOUNDS = {
    "gemma4-sound": lambda folder: gemma4_sound(folder, recordings()),
    "gemma4-sound-unbounded": lambda folder: gemma4_sound(
        folder, recordings()[::-1], use_clipped_linears=False, hidden_size=96, num_attention_heads=3, num_hidden_layers=1,
        subsampling_conv_channels=[128, 3], conv_kernel_size=3, attention_chunk_size=5, attention_context_left=6,
        attention_logit_cap=2.0, residual_weight=0.7, rms_norm_eps=1e-5, output_proj_dims=40,
    ),
    "gemma4-unified-sound": lambda folder: gemma4_unified(folder, sounds=[each[:5003] for each in recordings()]),
    "gemma4-unified-both": lambda folder: gemma4_unified(
        folder, pictures(), [each[:3001] for each in recordings()], audio=dict(audio_embed_dim=90, rms_norm_eps=1e-3), hidden_size=96, head_dim=24,
    ),
    # As long as it may be.
    "gemma4-sound-long": lambda folder: gemma4_sound(folder, [numpy.resize(recordings()[4], 480_000)]),
}  # fmt: skip

PIECES = "the cat dog sat on mat a house tree runs blue red sky ##s ##ing un ##able king queen water fire".split()
TEXTS = ["The cat sat on the mat.", "a dog runs", "Unable kings, queens and water!", "fire", "blue sky red house 42 tree " * 6]


def word_pieces():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase), *".,!?0123456789"]
    vocabulary = {piece: id for id, piece in enumerate(dict.fromkeys(special + PIECES + letters))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.add_special_tokens(special)
    return made, dict(tokenizer_class="BertTokenizer", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]")


def unigram():
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    whole = [("▁" + piece, -2 - 0.01 * i) for i, piece in enumerate(PIECES) if not piece.startswith("#")]
    letters = [(letter, -5 - 0.01 * i) for i, letter in enumerate(string.ascii_letters + ".,!?0123456789")]
    made = Tokenizer(models.Unigram([*((each, 0.0) for each in special), *whole, ("▁", -4.0), *letters], 3, False))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.add_special_tokens(special)
    return made, dict(tokenizer_class="XLMRobertaTokenizer", bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>")


def encoder(folder, model_type, tokens, pooling, **changes):
    """Vectors of texts; without a pooling, a classifier's scores of the other texts for the first."""
    tokenizer, about = tokens()
    tokenizer.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w") as file:
        json.dump(dict(about, model_max_length=500), file)
    shape = {key: SHAPE[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")}
    config = transformers.AutoConfig.for_model(model_type, vocab_size=tokenizer.get_vocab_size(), **{**shape, **changes})
    if not pooling:
        config.num_labels = 1
    auto = transformers.AutoModel if pooling else transformers.AutoModelForSequenceClassification
    model = saved(folder, config, auto, attn_implementation="eager")
    answers = []
    with torch.no_grad():
        for text in TEXTS if pooling else TEXTS[1:]:
            encoding = tokenizer.encode(text) if pooling else tokenizer.encode(TEXTS[0], text)
            types = {"token_type_ids": torch.tensor([encoding.type_ids])} if model_type == "bert" else {}
            output = model(input_ids=torch.tensor([encoding.ids]), **types)
            if pooling:
                states = output.last_hidden_state[0]
                vector = {"cls": states[0], "mean": states.mean(0), "last": states[-1]}[pooling]
                answers.append((vector / vector.norm()).tolist())
            else:
                answers.append(torch.sigmoid(output.logits[0]).item())
    if pooling:
        os.makedirs(f"{folder}/1_Pooling", exist_ok=True)
        modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
        with open(f"{folder}/modules.json", "w") as file:
            json.dump([dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}") for i, (kind, path) in enumerate(modules)], file)
        with open(f"{folder}/1_Pooling/config.json", "w") as file:
            names = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
            json.dump({f"pooling_mode_{name}": kind == pooling for kind, name in names.items()}, file)
    with open(f"{folder}/expected.json", "w") as file:
        json.dump({"texts": TEXTS, "vectors" if pooling else "scores": answers}, file)


ROBERTA = dict(pad_token_id=1, max_position_embeddings=514, type_vocab_size=1)
MODERN = dict(local_attention=8, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3, max_position_embeddings=512)
ENCODERS = {
    "bert": ("bert", word_pieces, "mean", {}),
    "bert-rank": ("bert", word_pieces, "", {}),
    "xlm-roberta": ("xlm-roberta", unigram, "cls", ROBERTA),
    "xlm-roberta-rank": ("xlm-roberta", unigram, "", ROBERTA),
    "modernbert": ("modernbert", word_pieces, "mean", MODERN),
    "modernbert-rank": ("modernbert", word_pieces, "", dict(MODERN, classifier_pooling="mean")),
    "embedding-gemma": ("gemma3_text", unigram, "mean", dict(HEAD, use_bidirectional_attention=True, num_key_value_heads=1, sliding_window=8, query_pre_attn_scalar=16, pad_token_id=1, bos_token_id=0, eos_token_id=2)),
    "qwen3-embedding": ("qwen3", word_pieces, "last", dict(HEAD, num_key_value_heads=2)),
}  # fmt: skip


def main():
    root, *names = sys.argv[1:]
    makers = {
        **{name: lambda folder, row=row: text_model(folder, *row) for name, row in TEXT.items()},
        **PICTURES,
        **SOUNDS,
        **{name: lambda folder, row=row: encoder(folder, *row[:3], **row[3]) for name, row in ENCODERS.items()},
    }
    for name in names or makers:
        torch.manual_seed(len(name))
        random.seed(len(name))
        os.makedirs(f"{root}/{name}", exist_ok=True)
        print(name, flush=True)
        makers[name](f"{root}/{name}")


main()
