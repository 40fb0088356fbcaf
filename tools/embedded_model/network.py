"""The network, a Llava of one million parameters, and its files."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from tokenizer_files import BOS, CONTEXT, EOS, IDS, IMAGE, PAD, write_tokenizer

SIDE, PATCH = 32, 8


def build_network() -> LlavaForConditionalGeneration:
    """Build the network with random weights; seed torch first."""
    vision = CLIPVisionConfig(
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=PATCH,
        projection_dim=96,
        hidden_act="quick_gelu",
    )
    text = LlamaConfig(
        vocab_size=len(IDS),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=IMAGE,
        projector_hidden_act="gelu",
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_seq_length=(SIDE // PATCH) ** 2,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return LlavaForConditionalGeneration(config)


def save_folder(network: LlavaForConditionalGeneration, folder: Path) -> None:
    """Write the whole Hugging Face folder: weights, config, tokenizer, processor."""
    network.save_pretrained(folder)
    _use_hub_names(folder / "model.safetensors")
    write_tokenizer(folder)
    image_processor = {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": SIDE, "width": SIDE},
        "resample": 3,
        "do_center_crop": False,
        "crop_size": {"height": SIDE, "width": SIDE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    processor = {
        "processor_class": "LlavaProcessor",
        "image_token": "<image>",
        "patch_size": PATCH,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }
    generation = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "do_sample": False}
    for name, content in (
        ("preprocessor_config.json", image_processor | {"processor_class": "LlavaProcessor"}),
        ("processor_config.json", processor),
        ("generation_config.json", generation),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _use_hub_names(path: Path) -> None:
    """Rename the tensors of the tower to the names of Llava checkpoints on the hub, for vLLM and older transformers."""
    tensors = load_file(path)
    renamed = {
        name.replace("vision_tower.", "vision_tower.vision_model.", 1): value
        for name, value in tensors.items()
    }
    save_file(renamed, path, metadata={"format": "pt"})
    path.chmod(0o644)
