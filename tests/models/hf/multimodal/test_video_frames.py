"""Video processors without torchvision give the same inputs as those of transformers."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from tests.models.hf.multimodal.media_requests import picture
from tests.models.hf.multimodal.tiny_multimodal import tiny

from assay.models.hf.multimodal.image_crops import CroppedImageProcessor
from assay.models.hf.multimodal.video_frames import VIDEO_PROCESSORS, fit_pixels


@pytest.mark.parametrize(
    ("size", "bounds", "fitted"),
    [
        ((480, 640), {}, (476, 644)),
        ((20, 20), {"min_pixels": 28 * 28}, (28, 28)),
        ((20, 20), {"min_pixels": 100 * 100}, (112, 112)),
        ((2000, 1000), {"max_pixels": 100_000}, (420, 196)),
        ((480, 640), {"max_pixels": 200_000, "frames": 8}, (112, 168)),
        ((20, 400), {"frames": 2}, (28, 560)),
    ],
)
def test_images_are_resized_to_the_pixel_limits(
    size: tuple[int, int], bounds: dict[str, int], fitted: tuple[int, int]
) -> None:
    assert fit_pixels(*size, **{"factor": 28, "min_pixels": 28 * 28, "max_pixels": 10**7, **bounds}) == fitted


def test_an_extreme_aspect_ratio_is_an_error() -> None:
    with pytest.raises(ValueError, match="aspect ratio"):
        fit_pixels(3, 900, factor=28, min_pixels=784, max_pixels=10**7)


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
def test_a_still_video_has_the_patches_of_its_image(kind: str) -> None:
    from assay.models.hf.multimodal.processor import load_processor

    processor = load_processor(str(tiny(kind)), kind, {"max_pixels": 10**7})
    image = picture(1, 90, 60).load()
    patches = processor.image_processor([image], return_tensors="pt")
    made = processor.video_processor([[image] * 3])
    count = len(patches["pixel_values"])
    assert made["video_grid_thw"].tolist() == [[2, *patches["image_grid_thw"][0, 1:].tolist()]]
    for half in (made["pixel_values_videos"][:count], made["pixel_values_videos"][count:]):
        assert float((half - patches["pixel_values"]).abs().max()) < 1e-5


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(VIDEO_PROCESSORS))
def test_every_video_processor_returns_its_declared_inputs(name: str) -> None:
    maker = VIDEO_PROCESSORS[name]({})
    made = maker([[[picture(1).load()] * 3], [[picture(2).load()] * 3]])
    assert set(maker.model_input_names) <= set(made)


@pytest.mark.torch
def test_video_processors_agree_with_torchvision() -> None:
    pytest.importorskip("torchvision")
    for name, make in VIDEO_PROCESSORS.items():
        theirs: Any = getattr(importlib.import_module("transformers"), name)()
        clip = [picture(at, 320, 240).load().resize((640, 480)) for at in range(4)]
        one, other = theirs([clip], do_sample_frames=False, return_tensors="pt"), make({})([clip])
        for key in read_input_names(make):
            assert one[key].shape == other[key].shape
            assert float((one[key].float() - other[key].float()).abs().mean()) < 0.01


def read_input_names(make: Any) -> tuple[str, ...]:
    return tuple(make.model_input_names)


@pytest.mark.parametrize(
    ("size", "crops", "tokens"),
    [((448, 448), 1, 256 + 1 + 256 + 16 + 16), ((320, 240), 1, 477), ((1280, 720), 6, 1596)],
)
@pytest.mark.torch
def test_phi_cuts_images_into_crops(size: tuple[int, int], crops: int, tokens: int) -> None:
    made = CroppedImageProcessor({})([picture(1, *size).load()])
    assert made["image_pixel_values"].shape[:2] == (1, crops + 1)
    assert made["num_img_tokens"] == [tokens]


@pytest.mark.parametrize(
    ("name", "arguments", "bounds"),
    [
        ("Qwen2VLVideoProcessor", {}, (10, 20)),
        ("Qwen2VLVideoProcessor", {"max_pixels": 99}, (10, 99)),
        ("Qwen2VLVideoProcessor", {"max_pixels": 99, "total_pixels": 80}, (10, 20)),
        ("Qwen3VLVideoProcessor", {}, (10, 20)),
        ("Qwen3VLVideoProcessor", {"min_pixels": 7, "max_pixels": 99}, (28, 396)),
        ("Qwen3VLVideoProcessor", {"max_pixels": 99, "total_pixels": 200}, (10, 200)),
    ],
)
def test_pixel_limits_in_arguments_apply_per_frame_and_override_the_file(
    name: str, arguments: dict[str, int], bounds: tuple[int, int]
) -> None:
    maker: Any = VIDEO_PROCESSORS[name]({"size": {"shortest_edge": 10, "longest_edge": 20}, **arguments})
    assert maker.find_pixel_limits(4) == bounds
