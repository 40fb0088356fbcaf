"""Model classes of lm-eval and lmms-eval as Assay models: `--model lm_eval/NAME`, `--model lmms_eval/NAME`."""
