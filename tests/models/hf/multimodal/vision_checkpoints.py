"""Tiny checkpoints that read images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.models.hf.multimodal.checkpoint_builder import VISION, Plan, template

_QWEN = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_QWEN_TEMPLATE = template(*(f"<|vision_start|>{mark}<|vision_end|>" for mark in _QWEN[2:]))


def _qwen(folder: Path, config: str, model: str, processor: str, vision: dict[str, Any], **text: Any) -> None:
    import transformers

    plan = Plan(folder, _QWEN)
    made = getattr(transformers, config)(
        text_config={
            **plan.text,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
            **text,
        },
        vision_config=vision,
        image_token_id=plan.id("<|image_pad|>"),
        video_token_id=plan.id("<|video_pad|>"),
        vision_start_token_id=plan.id("<|vision_start|>"),
        vision_end_token_id=plan.id("<|vision_end|>"),
    )
    side = vision["patch_size"]
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": processor,
        "size": {"shortest_edge": (2 * side) ** 2, "longest_edge": 16 * (2 * side) ** 2},
        "patch_size": side,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    plan.save(model, made, settings, _QWEN_TEMPLATE)


def qwen2_vl(folder: Path) -> None:
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "num_heads": 2,
        "hidden_size": 32,
        "patch_size": 14,
        "mlp_ratio": 2,
    }
    _qwen(folder, "Qwen2VLConfig", "Qwen2VLForConditionalGeneration", "Qwen2VLProcessor", vision)


def qwen2_5_vl(folder: Path) -> None:
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 32,
        "patch_size": 14,
        "window_size": 56,
        "fullatt_block_indexes": [1],
    }
    _qwen(folder, "Qwen2_5_VLConfig", "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLProcessor", vision)


def qwen3_vl(folder: Path) -> None:
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 32,
        "patch_size": 16,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
    }
    _qwen(folder, "Qwen3VLConfig", "Qwen3VLForConditionalGeneration", "Qwen3VLProcessor", vision, head_dim=8)


def llava_onevision(folder: Path) -> None:
    from transformers import LlavaOnevisionConfig

    plan = Plan(folder, ["<image>", "<video>"])
    config = LlavaOnevisionConfig(
        text_config={"model_type": "qwen2", **plan.text},
        vision_config={"model_type": "siglip_vision_model", **VISION, "image_size": 32, "patch_size": 8},
        image_token_index=plan.id("<image>"),
        video_token_index=plan.id("<video>"),
        image_grid_pinpoints=[[32, 32], [32, 64], [64, 32]],
    )
    settings = {
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "processor_class": "LlavaOnevisionProcessor",
        "size": {"height": 32, "width": 32},
        "image_grid_pinpoints": [[32, 32], [32, 64], [64, 32]],
    }
    processor = {
        "processor_class": "LlavaOnevisionProcessor",
        "num_image_tokens": 16,
        "vision_feature_select_strategy": "full",
        "image_token": "<image>",
        "video_token": "<video>",
    }
    video = {"video_processor_type": "LlavaOnevisionVideoProcessor", "size": {"height": 32, "width": 32}}
    plan.save(
        "LlavaOnevisionForConditionalGeneration",
        config,
        settings,
        template("<image>\n", "<video>\n"),
        processor_config=processor,
        video_preprocessor_config=video,
    )


def internvl(folder: Path) -> None:
    from transformers import InternVLConfig

    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    plan = Plan(folder, list(named.values()), named)
    config = InternVLConfig(
        text_config={"model_type": "qwen2", **plan.text},
        vision_config={**VISION, "image_size": [32, 32], "patch_size": [8, 8]},
        image_token_id=plan.id("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    size = {"height": 32, "width": 32}
    settings = {
        "image_processor_type": "GotOcr2ImageProcessor",
        "processor_class": "InternVLProcessor",
        "size": size,
        "min_patches": 1,
        "max_patches": 4,
        "crop_to_patches": False,
    }
    plan.save(
        "InternVLForConditionalGeneration",
        config,
        settings,
        template("<IMG_CONTEXT>\n", "<video>\n"),
        processor_config={"processor_class": "InternVLProcessor", "image_seq_length": 4},
        video_preprocessor_config={"video_processor_type": "InternVLVideoProcessor", "size": size},
    )


def gemma3(folder: Path) -> None:
    from transformers import Gemma3Config

    named = {
        "boi_token": "<start_of_image>",
        "eoi_token": "<end_of_image>",
        "image_token": "<image_soft_token>",
    }
    plan = Plan(folder, list(named.values()), named)
    config = Gemma3Config(
        text_config={
            **plan.text,
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        vision_config={**VISION, "image_size": 32, "patch_size": 8},
        mm_tokens_per_image=4,
        boi_token_index=plan.id("<start_of_image>"),
        eoi_token_index=plan.id("<end_of_image>"),
        image_token_index=plan.id("<image_soft_token>"),
    )
    settings = {
        "image_processor_type": "Gemma3ImageProcessor",
        "processor_class": "Gemma3Processor",
        "size": {"height": 32, "width": 32},
    }
    plan.save(
        "Gemma3ForConditionalGeneration",
        config,
        settings,
        template("<start_of_image>"),
        processor_config={"processor_class": "Gemma3Processor", "image_seq_length": 4},
    )


def idefics3(folder: Path, model: str = "Idefics3") -> None:
    import transformers

    rows = [f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)]
    plan = Plan(
        folder,
        ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<video>", *rows],
    )
    config = getattr(transformers, f"{model}Config")(
        text_config={"model_type": "llama", **plan.text},
        vision_config={**VISION, "image_size": 32, "patch_size": 8},
        image_token_id=plan.id("<image>"),
        scale_factor=2,
        **plan.ends,
    )
    settings = {
        "image_processor_type": f"{model}ImageProcessor",
        "processor_class": f"{model}Processor",
        "size": {"longest_edge": 64},
        "max_image_size": {"longest_edge": 32},
        "do_image_splitting": True,
    }
    others = (
        {"video_preprocessor_config": {"max_image_size": {"longest_edge": 32}}} if model == "SmolVLM" else {}
    )
    plan.save(
        f"{model}ForConditionalGeneration",
        config,
        settings,
        template("<image>", "<video>"),
        processor_config={"processor_class": f"{model}Processor", "image_seq_len": 4},
        **others,
    )


def smolvlm(folder: Path) -> None:
    idefics3(folder, "SmolVLM")
