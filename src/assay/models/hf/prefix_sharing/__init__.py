"""Compute the tokens that several sequences share only once.

prefix_tree      token sequences as a tree of shared prefixes
pass_planning    which nodes of the tree to compute in which forward pass
pass_execution   plans ahead in a thread and runs the passes
model_runner     one forward pass of a causal model
attention_mask   the mask of a pass that packs several branches
block_attention  CPU attention that skips masked blocks
kv_cache         keys and values of computed tokens
prefill          reads prompts into the KV cache
check            compares shared and unshared logits when a model is loaded
"""
