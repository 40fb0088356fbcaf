"""Reads the text in pictures, with RapidOCR (PP-OCR networks on ONNX Runtime)."""

from assay.models.ocr.adapter import OcrModel

__all__ = ["OcrModel"]
