"""Tiny checkpoints that read audio."""

from __future__ import annotations

import json
from pathlib import Path

from tests.models.hf.multimodal.checkpoint_builder import Plan, template


def qwen2_audio(folder: Path) -> None:
    from transformers import Qwen2AudioConfig

    plan = Plan(folder, ["<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"])
    config = Qwen2AudioConfig(
        text_config={"model_type": "qwen2", **plan.text},
        audio_config={
            "d_model": 32,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 48,
            "num_mel_bins": 16,
            "max_source_positions": 100,
        },
        audio_token_index=plan.id("<|AUDIO|>"),
    )
    settings = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "Qwen2AudioProcessor",
        "feature_size": 16,
        "chunk_length": 2,
        "return_attention_mask": True,
    }
    written = template(audio="<|audio_bos|><|AUDIO|><|audio_eos|>\n")
    plan.save("Qwen2AudioForConditionalGeneration", config, settings, written)


def whisper(folder: Path) -> None:
    from transformers import WhisperConfig

    marks = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|translate|>", "<|notimestamps|>"]
    plan = Plan(folder, marks)
    config = WhisperConfig(
        vocab_size=plan.size,
        num_mel_bins=16,
        d_model=32,
        max_source_positions=100,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        decoder_start_token_id=plan.id(marks[0]),
        begin_suppress_tokens=None,
        max_target_positions=64,
        **plan.ends,
    )
    settings = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": 16,
        "chunk_length": 2,
    }
    plan.save("WhisperForConditionalGeneration", config, settings, "")
    path = folder / "tokenizer_config.json"
    kind = {"tokenizer_class": "WhisperTokenizer"}
    plan.write(path.name, {**json.loads(path.read_text(encoding="utf-8")), **kind})
    path = folder / "generation_config.json"
    generation = {
        **json.loads(path.read_text(encoding="utf-8")),
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": plan.id("<|en|>")},
        "task_to_id": {"transcribe": plan.id("<|transcribe|>"), "translate": plan.id("<|translate|>")},
        "no_timestamps_token_id": plan.id("<|notimestamps|>"),
        "max_length": 64,
    }
    plan.write("generation_config.json", generation)


def phi4_multimodal(folder: Path) -> None:
    from transformers import Phi4MultimodalConfig

    plan = Plan(folder, ["<|image|>", "<|audio|>"], {"image_token": "<|image|>", "audio_token": "<|audio|>"})
    config = Phi4MultimodalConfig(
        **plan.text,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 448,
            "crop_size": 448,
            "patch_size": 14,
            "image_token_id": plan.id("<|image|>"),
        },
        audio_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_blocks": 2,
            "num_attention_heads": 2,
            "ext_pw_out_channel": 32,
            "depthwise_separable_out_channel": 32,
            "nemo_conv_channels": 32,
            "audio_token_id": plan.id("<|audio|>"),
        },
    )
    settings = {
        "image_processor_type": "Phi4MultimodalImageProcessor",
        "processor_class": "Phi4MultimodalProcessor",
        "feature_extractor_type": "Phi4MultimodalFeatureExtractor",
        "audio_processor_type": "Phi4MultimodalFeatureExtractor",
        "size": {"height": 448, "width": 448},
        "patch_size": 14,
        "dynamic_hd": 4,
    }
    plan.save("Phi4MultimodalForCausalLM", config, settings, template("<|image|>", audio="<|audio|>"))


def qwen2_5_omni(folder: Path) -> None:
    import torch
    from transformers import Qwen2_5OmniConfig

    named = {
        "image_token": "<|IMAGE|>",
        "audio_token": "<|AUDIO|>",
        "video_token": "<|VIDEO|>",
        "vision_bos_token": "<|vision_bos|>",
        "vision_eos_token": "<|vision_eos|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
    }
    plan = Plan(folder, list(named.values()), named)
    rotary = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    thinker = {
        "text_config": {**plan.text, "rope_parameters": rotary},
        "vision_config": {
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": 32,
            "window_size": 56,
            "fullatt_block_indexes": [1],
        },
        "audio_config": {
            "d_model": 32,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 48,
            "num_mel_bins": 16,
            "max_source_positions": 100,
            "n_window": 50,
            "output_dim": 32,
        },
        "audio_token_index": plan.id("<|AUDIO|>"),
        "image_token_index": plan.id("<|IMAGE|>"),
        "video_token_index": plan.id("<|VIDEO|>"),
        "vision_start_token_id": plan.id("<|vision_bos|>"),
        "vision_end_token_id": plan.id("<|vision_eos|>"),
        "audio_start_token_id": plan.id("<|audio_bos|>"),
        "audio_end_token_id": plan.id("<|audio_eos|>"),
    }
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "Qwen2_5OmniProcessor",
        "size": {"shortest_edge": 28 * 28, "longest_edge": 16 * 28 * 28},
        "patch_size": 14,
        "feature_size": 16,
        "chunk_length": 2,
        "return_attention_mask": True,
    }
    seen, shown = (f"<|vision_bos|>{mark}<|vision_eos|>" for mark in ("<|IMAGE|>", "<|VIDEO|>"))
    written = template(seen, shown, "<|audio_bos|><|AUDIO|><|audio_eos|>")
    config = Qwen2_5OmniConfig(thinker_config=thinker, enable_audio_output=False)
    plan.save("Qwen2_5OmniForConditionalGeneration", config, settings, written)
    torch.save({}, folder / "spk_dict.pt")  # the voices, required even without audio output
